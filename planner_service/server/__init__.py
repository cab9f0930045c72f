"""The planner's service over gRPC."""
