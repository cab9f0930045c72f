"""The log: lines for people or for programs, with what each is about as fields."""

from planner_service.logs.child_output import ChildOutput
from planner_service.logs.fields import Value, afresh, bind, bound, bound_fields, fields
from planner_service.logs.setup import log_to_stderr
from planner_service.logs.throttle import Throttle

__all__ = ["ChildOutput", "Throttle", "Value", "afresh", "bind", "bound", "bound_fields", "fields", "log_to_stderr"]
