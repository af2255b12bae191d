"""What the schemas of ATen operators cannot say: one file per family, each adding to one registry.

`harness.generate.case_library.load_cases` imports them. README.md beside this file says how to write one.
"""
