"""Root causes of failures, their priority by use, and known issues: reading a record, running nothing."""
