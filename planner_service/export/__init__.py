"""Plans as other programs and people read them: traces and pictures, planned beside measured."""

from planner_service.export.trace import chrome_trace

__all__ = ["chrome_trace"]
