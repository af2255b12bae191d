"""The static page that shows runs: read from the record, written as files that any browser opens."""
