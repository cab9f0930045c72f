"""What a planner's jobs do, for people in a terminal: asked of the planner, put into words, drawn, watched."""
