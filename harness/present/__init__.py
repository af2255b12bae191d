"""What people look at: the terminal report, Markdown, and the dashboard."""
