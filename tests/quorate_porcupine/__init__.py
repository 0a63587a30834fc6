"""Histories of commands judged by porcupine, a linearizability checker that is not this project's.

`program/` is the Go program around it, `judge` builds and runs that.
"""
