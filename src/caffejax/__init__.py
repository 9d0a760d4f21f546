"""caffejax: a compiler that takes Caffe models and runs them on JAX.

    net = caffejax.Net("train_val.prototxt", phase="TRAIN")
    params, state = net.init(jax.random.key(0))
    loss, outputs = net.loss(params, state, batch, jax.random.key(1))

    solver = caffejax.Solver("solver.prototxt")
    solver.solve()

`__init__.pyi` lists the public names. Each is imported when it is first used, so that `import caffejax` is fast.
"""

import lazy_loader

from .base.import_alias import declared_packages
from .core.ops.implementations import declare_provider

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

# Python layers import `pycaffe` as `caffe`; after `pycaffe.install()` the whole process does
declared_packages["caffe"] = f"{__name__}.pycaffe"
for _room in ("cpu", "forks"):
    declare_provider(f"{__name__}.{_room}")
