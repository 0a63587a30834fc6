"""Exports of a zone: consistent cuts in Parquet files with a manifest; and their way back."""
