"""A process that runs exported flax source without caffejax. Nothing here may import JAX or caffejax at the top."""

import importlib.util
import io
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any


def compute_outputs(folder: str, batches: list[list[Any]]) -> list[tuple[Any, ...]]:
    """Return the outputs of the net in a folder for lists of inputs, in order."""
    _block_caffejax()
    return run_source(folder, batches)


def run_source(folder: str, batches: list[list[Any]]) -> list[tuple[Any, ...]]:
    """The same, where caffejax may be imported; compiled in little time."""
    import jax
    import numpy as np
    from flax import nnx

    definition, state = nnx.split(_load_module(folder).load())

    def run(state: Any, *arrays: Any) -> tuple[Any, ...]:
        result = nnx.merge(definition, state)(*arrays)
        return tuple(result.values()) if isinstance(result, dict) else (result,)

    compiled = jax.jit(run, compiler_options={"xla_backend_optimization_level": 0})
    return [jax.tree.map(np.asarray, compiled(state, *arrays)) for arrays in batches]


def compute_gradient(folder: str, batch: Any, weights: Any) -> Any:
    """The gradient by the input of the output's sum, weighted."""
    import jax
    import numpy as np

    _block_caffejax()
    model = _load_module(folder).load()
    return np.asarray(jax.grad(lambda x: (model(x) * weights).sum())(batch))


def run_readme(folder: str) -> str:
    """Return the output of the code on the page in a folder."""
    _block_caffejax()
    sys.path.insert(0, folder)
    sys.modules.pop("model", None)
    blocks = (Path(folder) / "README.md").read_text().split("```python\n")[1:]
    namespace: dict[str, Any] = {}
    with redirect_stdout(io.StringIO()) as output:
        for block in blocks:
            exec(block.split("```")[0], namespace)
    sys.path.remove(folder)
    return output.getvalue()


def collect_results_by_mode(folder: str, batch: Any) -> dict[str, Any]:
    """Return a net's results in train mode, twice on the same batch, and in eval mode before and after."""
    import numpy as np
    from flax import nnx

    model = _load_module(folder).load()
    result: dict[str, Any] = {"eval": np.asarray(model(batch)), "statistics": _statistics(model)}
    model.train()
    result["train"] = [np.asarray(model(batch)) for _ in range(2)]
    result["train statistics"] = _statistics(model)
    model.eval()
    result["eval again"] = np.asarray(model(batch))
    result["params"] = {
        ".".join(map(str, names)): variable.shape for names, variable in nnx.to_flat_state(nnx.state(model, nnx.Param))
    }
    return result


def _statistics(model: Any) -> dict[str, Any]:
    import numpy as np
    from flax import nnx

    flat = nnx.to_flat_state(nnx.state(model, nnx.BatchStat))
    return {".".join(map(str, names)): np.array(variable[...]) for names, variable in flat}


def _load_module(folder: str) -> Any:
    spec = importlib.util.spec_from_file_location("model", Path(folder) / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _block_caffejax() -> None:
    sys.modules["caffejax"] = None  # type: ignore[assignment]
