"""``python -m planner_service.metrics`` prints the table of all metrics that docs/metrics.md holds."""

from planner_service.metrics.table import table

if __name__ == "__main__":
    print(table(), end="")
