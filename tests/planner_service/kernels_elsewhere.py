"""A planner's process on another CPU: ``python -m`` style script that tests start, also in a container's root.

    python kernels_elsewhere.py CPU

LLVM is told that this machine is CPU, without AVX-512, before any kernel is loaded. Plans the requests that run every
kernel and prints JSON: digests of the plans, and what was compiled meanwhile.
"""

from __future__ import annotations

import json
import sys

from llvmlite import binding


def main() -> None:
    """Plan, and print."""
    features = binding.get_host_cpu_features()
    for name in features:
        features[name] = features[name] and not name.startswith("avx512")
    binding.get_host_cpu_name = lambda: sys.argv[1]
    binding.get_host_cpu_features = lambda: features

    from numba.core import event

    from planner_service.kernel_cache import CACHE, are_compiled
    from planner_service.planning import make_plan
    from planner_service.warmup import small_requests

    before = are_compiled()
    with event.install_recorder("numba:compile") as recorder:
        digests = [make_plan(request).digest.hex() for request in small_requests()]
    compiled = [str(each.data["dispatcher"]) for _, each in recorder.buffer if each.is_start]
    print(json.dumps({"folder": CACHE.name, "were_compiled": before, "compiled": compiled, "digests": digests}))


if __name__ == "__main__":
    main()
