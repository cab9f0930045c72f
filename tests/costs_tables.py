"""A small description of a model, as its file holds it; tests copy what they change."""

from __future__ import annotations

from typing import Any

TABLES: dict[str, Any] = {
    "gpu": "H100",
    "tensor_parallel": 2,
    "cluster": {"ranks": 2},
    "batch": {"microbatches": 3, "samples": 2},
    "modules": [
        {
            "name": "vision",
            "layers": 4,
            "width": 512,
            "mlp_width": 2048,
            "mlp_matrices": 2,
            "heads": 8,
            "result_width": 1024,
            "merge": 4,
            "instances": 2,
            "instance_units": 256,
        },
        {
            "name": "language",
            "inputs": ["vision"],
            "layers": 6,
            "width": 1024,
            "mlp_width": 4096,
            "heads": 16,
            "groups": 4,
            "causal": True,
            "instance_units": 600,
        },
    ],
}
