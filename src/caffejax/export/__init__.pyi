# The public names, for type checkers and lazy_loader. Type checkers treat names imported with `as` as public.

from .export_weights import find_zero_weights as find_zero_weights
from .export_weights import load_export_weights as load_export_weights
from .flax import write_flax as write_flax
from .flax_module import CaffeModule as CaffeModule
from .flax_module import to_linen as to_linen
from .flax_module import variables_of as variables_of
from .inference_model import BatchError as BatchError
from .inference_model import InferenceModel as InferenceModel
from .inference_model import make_inference_model as make_inference_model
from .onnx import export_onnx as export_onnx
from .onnx import write_onnx as write_onnx
from .stablehlo import PLATFORMS as PLATFORMS
from .stablehlo import export_stablehlo as export_stablehlo
from .stablehlo import write_stablehlo as write_stablehlo
from .uint8_input import Uint8Preprocessing as Uint8Preprocessing
from .uint8_input import caffe_channel_order as caffe_channel_order
from .uint8_input import find_image_input as find_image_input
from .uint8_input import read_data_layer_preprocessing as read_data_layer_preprocessing
