"""What is supported, as static pages, as JSON beside them and as a Markdown table."""
