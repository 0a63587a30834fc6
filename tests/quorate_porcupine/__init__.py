"""Histories of commands and transactions judged by porcupine, a checker that is not this project's.

`program/` is the Go program around it, `judge` builds and runs that.
"""
