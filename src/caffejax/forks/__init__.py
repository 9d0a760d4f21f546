"""Layer types and data sources of Caffe's forks, a folder for each family.

`LAYERS` is found through the entry point `caffejax.layers`; scripts/make_layer_index.py writes the index that it reads.
"""

from pathlib import Path

from ..core.layers.packages import LayerPackage

LAYERS = LayerPackage.read(
    Path(__file__).with_name("index.json"),
    python_layers=f"{__name__}.rcnn.builtin_python_layers",
    fillers=f"{__name__}.general.fillers",
)
