"""Output for people: the terminal report, Markdown, and the dashboard."""
