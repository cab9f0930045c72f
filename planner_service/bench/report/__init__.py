"""Reports made from results alone: tables, the targets, Markdown and pictures."""
