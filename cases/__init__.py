"""Facts about ATen operators that their schemas lack: one file per family, each adding to one registry.

`harness.generate.case_library.load_cases` imports them. README.md in this folder explains how to write one.
"""
