"""Stock client libraries in programs of their own: what each is, where it is, what it saw.

`tests/clients/` has the programs, in the languages of the libraries; `installed` puts a library of
a pinned version into the cache, `running` starts a program beside a test and has its report.
"""
