"""Modules that stand in for other packages' own: only the import line of a program changes.

Each says in its docstring what it stands in for and where it differs on purpose; docs/migrating.md has a row for
every name. None is imported by the package itself.
"""
