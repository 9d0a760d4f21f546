"""One of several processes that train nets together: `process_worker.py HOST:PORT PROCESSES ID DEVICES OUT JOB...`.

Each job is the arguments of `parallel_nets.train` as JSON, or of a different function there, named by `call`. Process 0
writes the results to the file OUT.
"""

import json
import pickle
import sys
from pathlib import Path


def main(address: str, num_processes: str, process_id: str, num_devices: str, out: str, *jobs: str) -> None:
    import jax
    import parallel_nets

    from caffejax.core.parallel.mesh import is_first
    from caffejax.core.parallel.multihost import initialize_distributed

    jax.config.update("jax_num_cpu_devices", int(num_devices))
    initialize_distributed(address, int(num_processes), int(process_id))
    result = [getattr(parallel_nets, job.pop("call", "train"))(**job) for job in map(json.loads, jobs)]
    if is_first():
        Path(out).write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
