# mypy: disable-error-code="type-arg,no-untyped-def"
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRAIN: _ClassVar[Phase]
    TEST: _ClassVar[Phase]
    RUN: _ClassVar[Phase]
    FORWARDA: _ClassVar[Phase]
    FORWARDB: _ClassVar[Phase]

class DatumTypeInfo(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DatumTypeInfo_DATUM: _ClassVar[DatumTypeInfo]
    DatumTypeInfo_ANNOTATED_DATUM: _ClassVar[DatumTypeInfo]

class Packing(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NCHW: _ClassVar[Packing]
    NHWC: _ClassVar[Packing]

class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DOUBLE: _ClassVar[Type]
    FLOAT: _ClassVar[Type]
    FLOAT16: _ClassVar[Type]
    INT: _ClassVar[Type]
    UINT: _ClassVar[Type]
    BOOL: _ClassVar[Type]
TRAIN: Phase
TEST: Phase
RUN: Phase
FORWARDA: Phase
FORWARDB: Phase
DatumTypeInfo_DATUM: DatumTypeInfo
DatumTypeInfo_ANNOTATED_DATUM: DatumTypeInfo
NCHW: Packing
NHWC: Packing
DOUBLE: Type
FLOAT: Type
FLOAT16: Type
INT: Type
UINT: Type
BOOL: Type

class BlobShape(_message.Message):
    __slots__ = ("dim",)
    DIM_FIELD_NUMBER: _ClassVar[int]
    dim: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, dim: _Optional[_Iterable[int]] = ...) -> None: ...

class BlobProto(_message.Message):
    __slots__ = ("shape", "data", "diff", "double_data", "double_diff", "num", "channels", "height", "width", "raw_data_type", "raw_diff_type", "raw_data", "raw_diff")
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    DIFF_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_DATA_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_DIFF_FIELD_NUMBER: _ClassVar[int]
    NUM_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    RAW_DATA_TYPE_FIELD_NUMBER: _ClassVar[int]
    RAW_DIFF_TYPE_FIELD_NUMBER: _ClassVar[int]
    RAW_DATA_FIELD_NUMBER: _ClassVar[int]
    RAW_DIFF_FIELD_NUMBER: _ClassVar[int]
    shape: BlobShape
    data: _containers.RepeatedScalarFieldContainer[float]
    diff: _containers.RepeatedScalarFieldContainer[float]
    double_data: _containers.RepeatedScalarFieldContainer[float]
    double_diff: _containers.RepeatedScalarFieldContainer[float]
    num: int
    channels: int
    height: int
    width: int
    raw_data_type: Type
    raw_diff_type: Type
    raw_data: bytes
    raw_diff: bytes
    def __init__(self, shape: _Optional[_Union[BlobShape, _Mapping]] = ..., data: _Optional[_Iterable[float]] = ..., diff: _Optional[_Iterable[float]] = ..., double_data: _Optional[_Iterable[float]] = ..., double_diff: _Optional[_Iterable[float]] = ..., num: _Optional[int] = ..., channels: _Optional[int] = ..., height: _Optional[int] = ..., width: _Optional[int] = ..., raw_data_type: _Optional[_Union[Type, str]] = ..., raw_diff_type: _Optional[_Union[Type, str]] = ..., raw_data: _Optional[bytes] = ..., raw_diff: _Optional[bytes] = ...) -> None: ...

class BlobProtoVector(_message.Message):
    __slots__ = ("blobs",)
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    blobs: _containers.RepeatedCompositeFieldContainer[BlobProto]
    def __init__(self, blobs: _Optional[_Iterable[_Union[BlobProto, _Mapping]]] = ...) -> None: ...

class Datum(_message.Message):
    __slots__ = ("channels", "height", "width", "data", "label", "float_data", "encoded", "seg_label", "record_id")
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    FLOAT_DATA_FIELD_NUMBER: _ClassVar[int]
    ENCODED_FIELD_NUMBER: _ClassVar[int]
    SEG_LABEL_FIELD_NUMBER: _ClassVar[int]
    RECORD_ID_FIELD_NUMBER: _ClassVar[int]
    channels: int
    height: int
    width: int
    data: bytes
    label: int
    float_data: _containers.RepeatedScalarFieldContainer[float]
    encoded: bool
    seg_label: bytes
    record_id: int
    def __init__(self, channels: _Optional[int] = ..., height: _Optional[int] = ..., width: _Optional[int] = ..., data: _Optional[bytes] = ..., label: _Optional[int] = ..., float_data: _Optional[_Iterable[float]] = ..., encoded: _Optional[bool] = ..., seg_label: _Optional[bytes] = ..., record_id: _Optional[int] = ...) -> None: ...

class FillerParameter(_message.Message):
    __slots__ = ("type", "value", "min", "max", "mean", "std", "sparse", "variance_norm", "diag_val", "alpha", "scale", "width", "height", "channels", "expectation_option", "xy")
    class VarianceNorm(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        FAN_IN: _ClassVar[FillerParameter.VarianceNorm]
        FAN_OUT: _ClassVar[FillerParameter.VarianceNorm]
        AVERAGE: _ClassVar[FillerParameter.VarianceNorm]
    FAN_IN: FillerParameter.VarianceNorm
    FAN_OUT: FillerParameter.VarianceNorm
    AVERAGE: FillerParameter.VarianceNorm
    TYPE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    MEAN_FIELD_NUMBER: _ClassVar[int]
    STD_FIELD_NUMBER: _ClassVar[int]
    SPARSE_FIELD_NUMBER: _ClassVar[int]
    VARIANCE_NORM_FIELD_NUMBER: _ClassVar[int]
    DIAG_VAL_FIELD_NUMBER: _ClassVar[int]
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    EXPECTATION_OPTION_FIELD_NUMBER: _ClassVar[int]
    XY_FIELD_NUMBER: _ClassVar[int]
    type: str
    value: float
    min: float
    max: float
    mean: float
    std: float
    sparse: int
    variance_norm: FillerParameter.VarianceNorm
    diag_val: _containers.RepeatedScalarFieldContainer[float]
    alpha: float
    scale: float
    width: int
    height: int
    channels: int
    expectation_option: str
    xy: str
    def __init__(self, type: _Optional[str] = ..., value: _Optional[float] = ..., min: _Optional[float] = ..., max: _Optional[float] = ..., mean: _Optional[float] = ..., std: _Optional[float] = ..., sparse: _Optional[int] = ..., variance_norm: _Optional[_Union[FillerParameter.VarianceNorm, str]] = ..., diag_val: _Optional[_Iterable[float]] = ..., alpha: _Optional[float] = ..., scale: _Optional[float] = ..., width: _Optional[int] = ..., height: _Optional[int] = ..., channels: _Optional[int] = ..., expectation_option: _Optional[str] = ..., xy: _Optional[str] = ...) -> None: ...

class NetParameter(_message.Message):
    __slots__ = ("name", "input", "input_shape", "input_dim", "force_backward", "state", "debug_info", "layer", "layers", "engine", "compile_net_state", "bn_stats_batch_size", "default_backward_type", "default_forward_math", "default_backward_math", "global_grad_scale", "global_grad_scale_adaptive", "default_conv_algos_override", "reduce_buckets", "default_cudnn_math_override", "eltwise_mem_sharing", "multinode", "mem_param", "default_forward_type", "enable_memory_stats", "model_type", "base_weight_file", "base_tokenizer_file")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    INPUT_SHAPE_FIELD_NUMBER: _ClassVar[int]
    INPUT_DIM_FIELD_NUMBER: _ClassVar[int]
    FORCE_BACKWARD_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DEBUG_INFO_FIELD_NUMBER: _ClassVar[int]
    LAYER_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    COMPILE_NET_STATE_FIELD_NUMBER: _ClassVar[int]
    BN_STATS_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_BACKWARD_TYPE_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_FORWARD_MATH_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_BACKWARD_MATH_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_GRAD_SCALE_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_GRAD_SCALE_ADAPTIVE_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_CONV_ALGOS_OVERRIDE_FIELD_NUMBER: _ClassVar[int]
    REDUCE_BUCKETS_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_CUDNN_MATH_OVERRIDE_FIELD_NUMBER: _ClassVar[int]
    ELTWISE_MEM_SHARING_FIELD_NUMBER: _ClassVar[int]
    MULTINODE_FIELD_NUMBER: _ClassVar[int]
    MEM_PARAM_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_FORWARD_TYPE_FIELD_NUMBER: _ClassVar[int]
    ENABLE_MEMORY_STATS_FIELD_NUMBER: _ClassVar[int]
    MODEL_TYPE_FIELD_NUMBER: _ClassVar[int]
    BASE_WEIGHT_FILE_FIELD_NUMBER: _ClassVar[int]
    BASE_TOKENIZER_FILE_FIELD_NUMBER: _ClassVar[int]
    name: str
    input: _containers.RepeatedScalarFieldContainer[str]
    input_shape: _containers.RepeatedCompositeFieldContainer[BlobShape]
    input_dim: _containers.RepeatedScalarFieldContainer[int]
    force_backward: bool
    state: NetState
    debug_info: bool
    layer: _containers.RepeatedCompositeFieldContainer[LayerParameter]
    layers: _containers.RepeatedCompositeFieldContainer[V1LayerParameter]
    engine: str
    compile_net_state: CompileNetState
    bn_stats_batch_size: int
    default_backward_type: Type
    default_forward_math: Type
    default_backward_math: Type
    global_grad_scale: float
    global_grad_scale_adaptive: bool
    default_conv_algos_override: str
    reduce_buckets: int
    default_cudnn_math_override: int
    eltwise_mem_sharing: bool
    multinode: MultinodeParameter
    mem_param: MemoryOptimizationParameter
    default_forward_type: Type
    enable_memory_stats: bool
    model_type: str
    base_weight_file: str
    base_tokenizer_file: str
    def __init__(self, name: _Optional[str] = ..., input: _Optional[_Iterable[str]] = ..., input_shape: _Optional[_Iterable[_Union[BlobShape, _Mapping]]] = ..., input_dim: _Optional[_Iterable[int]] = ..., force_backward: _Optional[bool] = ..., state: _Optional[_Union[NetState, _Mapping]] = ..., debug_info: _Optional[bool] = ..., layer: _Optional[_Iterable[_Union[LayerParameter, _Mapping]]] = ..., layers: _Optional[_Iterable[_Union[V1LayerParameter, _Mapping]]] = ..., engine: _Optional[str] = ..., compile_net_state: _Optional[_Union[CompileNetState, _Mapping]] = ..., bn_stats_batch_size: _Optional[int] = ..., default_backward_type: _Optional[_Union[Type, str]] = ..., default_forward_math: _Optional[_Union[Type, str]] = ..., default_backward_math: _Optional[_Union[Type, str]] = ..., global_grad_scale: _Optional[float] = ..., global_grad_scale_adaptive: _Optional[bool] = ..., default_conv_algos_override: _Optional[str] = ..., reduce_buckets: _Optional[int] = ..., default_cudnn_math_override: _Optional[int] = ..., eltwise_mem_sharing: _Optional[bool] = ..., multinode: _Optional[_Union[MultinodeParameter, _Mapping]] = ..., mem_param: _Optional[_Union[MemoryOptimizationParameter, _Mapping]] = ..., default_forward_type: _Optional[_Union[Type, str]] = ..., enable_memory_stats: _Optional[bool] = ..., model_type: _Optional[str] = ..., base_weight_file: _Optional[str] = ..., base_tokenizer_file: _Optional[str] = ...) -> None: ...

class SolverParameter(_message.Message):
    __slots__ = ("net", "net_param", "train_net", "test_net", "train_net_param", "test_net_param", "train_state", "test_state", "test_iter", "test_interval", "test_compute_loss", "test_initialization", "base_lr", "display", "average_loss", "max_iter", "iter_size", "lr_policy", "gamma", "power", "momentum", "weight_decay", "regularization_type", "stepsize", "stepvalue", "clip_gradients", "snapshot", "snapshot_prefix", "snapshot_diff", "snapshot_format", "solver_mode", "device_id", "random_seed", "type", "delta", "momentum2", "rms_decay", "debug_info", "snapshot_after_train", "solver_type", "layer_wise_reduce", "weights", "plateau_winsize", "show_per_class_result", "store_blobs_in_old_format", "disabled_update", "engine", "momentum_power", "larc", "larc_policy", "gan_solver", "test_offset", "weight_decay_power", "test_and_snapshot_last_epochs", "larc_turbo", "max_weight_decay", "ap_version", "clamp_weights_lower", "clamp_weights_upper", "clip_weights", "eval_type", "group_id", "larc_eta", "local_gw_ratio", "local_lr_auto", "max_momentum", "min_lr", "momentum_policy", "rampup_interval", "rampup_lr", "richness", "solver_data_type", "stageiter", "stagelr", "warmup_iter", "warmup_start_lr", "weight_decay_policy", "stepearly", "adamw_decay", "custom_trainer", "custom_trainer_properties", "output_average_results", "snapshot_include_weights", "snapshot_include_state", "accuracy_average_window", "enable_clip_gradient_status", "verbose_optimization_output", "use_test_net_for_running", "use_training_net_for_testing", "lbgfs_corrections", "ransom_seed")
    class SnapshotFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        HDF5: _ClassVar[SolverParameter.SnapshotFormat]
        BINARYPROTO: _ClassVar[SolverParameter.SnapshotFormat]
    HDF5: SolverParameter.SnapshotFormat
    BINARYPROTO: SolverParameter.SnapshotFormat
    class SolverMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CPU: _ClassVar[SolverParameter.SolverMode]
        GPU: _ClassVar[SolverParameter.SolverMode]
    CPU: SolverParameter.SolverMode
    GPU: SolverParameter.SolverMode
    class SolverType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SGD: _ClassVar[SolverParameter.SolverType]
        NESTEROV: _ClassVar[SolverParameter.SolverType]
        ADAGRAD: _ClassVar[SolverParameter.SolverType]
        RMSPROP: _ClassVar[SolverParameter.SolverType]
        ADADELTA: _ClassVar[SolverParameter.SolverType]
        ADAM: _ClassVar[SolverParameter.SolverType]
        SAG: _ClassVar[SolverParameter.SolverType]
    SGD: SolverParameter.SolverType
    NESTEROV: SolverParameter.SolverType
    ADAGRAD: SolverParameter.SolverType
    RMSPROP: SolverParameter.SolverType
    ADADELTA: SolverParameter.SolverType
    ADAM: SolverParameter.SolverType
    SAG: SolverParameter.SolverType
    NET_FIELD_NUMBER: _ClassVar[int]
    NET_PARAM_FIELD_NUMBER: _ClassVar[int]
    TRAIN_NET_FIELD_NUMBER: _ClassVar[int]
    TEST_NET_FIELD_NUMBER: _ClassVar[int]
    TRAIN_NET_PARAM_FIELD_NUMBER: _ClassVar[int]
    TEST_NET_PARAM_FIELD_NUMBER: _ClassVar[int]
    TRAIN_STATE_FIELD_NUMBER: _ClassVar[int]
    TEST_STATE_FIELD_NUMBER: _ClassVar[int]
    TEST_ITER_FIELD_NUMBER: _ClassVar[int]
    TEST_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    TEST_COMPUTE_LOSS_FIELD_NUMBER: _ClassVar[int]
    TEST_INITIALIZATION_FIELD_NUMBER: _ClassVar[int]
    BASE_LR_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_FIELD_NUMBER: _ClassVar[int]
    AVERAGE_LOSS_FIELD_NUMBER: _ClassVar[int]
    MAX_ITER_FIELD_NUMBER: _ClassVar[int]
    ITER_SIZE_FIELD_NUMBER: _ClassVar[int]
    LR_POLICY_FIELD_NUMBER: _ClassVar[int]
    GAMMA_FIELD_NUMBER: _ClassVar[int]
    POWER_FIELD_NUMBER: _ClassVar[int]
    MOMENTUM_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DECAY_FIELD_NUMBER: _ClassVar[int]
    REGULARIZATION_TYPE_FIELD_NUMBER: _ClassVar[int]
    STEPSIZE_FIELD_NUMBER: _ClassVar[int]
    STEPVALUE_FIELD_NUMBER: _ClassVar[int]
    CLIP_GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_PREFIX_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_DIFF_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FORMAT_FIELD_NUMBER: _ClassVar[int]
    SOLVER_MODE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    RANDOM_SEED_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    MOMENTUM2_FIELD_NUMBER: _ClassVar[int]
    RMS_DECAY_FIELD_NUMBER: _ClassVar[int]
    DEBUG_INFO_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_AFTER_TRAIN_FIELD_NUMBER: _ClassVar[int]
    SOLVER_TYPE_FIELD_NUMBER: _ClassVar[int]
    LAYER_WISE_REDUCE_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    PLATEAU_WINSIZE_FIELD_NUMBER: _ClassVar[int]
    SHOW_PER_CLASS_RESULT_FIELD_NUMBER: _ClassVar[int]
    STORE_BLOBS_IN_OLD_FORMAT_FIELD_NUMBER: _ClassVar[int]
    DISABLED_UPDATE_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    MOMENTUM_POWER_FIELD_NUMBER: _ClassVar[int]
    LARC_FIELD_NUMBER: _ClassVar[int]
    LARC_POLICY_FIELD_NUMBER: _ClassVar[int]
    GAN_SOLVER_FIELD_NUMBER: _ClassVar[int]
    TEST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DECAY_POWER_FIELD_NUMBER: _ClassVar[int]
    TEST_AND_SNAPSHOT_LAST_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    LARC_TURBO_FIELD_NUMBER: _ClassVar[int]
    MAX_WEIGHT_DECAY_FIELD_NUMBER: _ClassVar[int]
    AP_VERSION_FIELD_NUMBER: _ClassVar[int]
    CLAMP_WEIGHTS_LOWER_FIELD_NUMBER: _ClassVar[int]
    CLAMP_WEIGHTS_UPPER_FIELD_NUMBER: _ClassVar[int]
    CLIP_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    EVAL_TYPE_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    LARC_ETA_FIELD_NUMBER: _ClassVar[int]
    LOCAL_GW_RATIO_FIELD_NUMBER: _ClassVar[int]
    LOCAL_LR_AUTO_FIELD_NUMBER: _ClassVar[int]
    MAX_MOMENTUM_FIELD_NUMBER: _ClassVar[int]
    MIN_LR_FIELD_NUMBER: _ClassVar[int]
    MOMENTUM_POLICY_FIELD_NUMBER: _ClassVar[int]
    RAMPUP_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    RAMPUP_LR_FIELD_NUMBER: _ClassVar[int]
    RICHNESS_FIELD_NUMBER: _ClassVar[int]
    SOLVER_DATA_TYPE_FIELD_NUMBER: _ClassVar[int]
    STAGEITER_FIELD_NUMBER: _ClassVar[int]
    STAGELR_FIELD_NUMBER: _ClassVar[int]
    WARMUP_ITER_FIELD_NUMBER: _ClassVar[int]
    WARMUP_START_LR_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DECAY_POLICY_FIELD_NUMBER: _ClassVar[int]
    STEPEARLY_FIELD_NUMBER: _ClassVar[int]
    ADAMW_DECAY_FIELD_NUMBER: _ClassVar[int]
    CUSTOM_TRAINER_FIELD_NUMBER: _ClassVar[int]
    CUSTOM_TRAINER_PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_AVERAGE_RESULTS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_INCLUDE_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_INCLUDE_STATE_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_AVERAGE_WINDOW_FIELD_NUMBER: _ClassVar[int]
    ENABLE_CLIP_GRADIENT_STATUS_FIELD_NUMBER: _ClassVar[int]
    VERBOSE_OPTIMIZATION_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    USE_TEST_NET_FOR_RUNNING_FIELD_NUMBER: _ClassVar[int]
    USE_TRAINING_NET_FOR_TESTING_FIELD_NUMBER: _ClassVar[int]
    LBGFS_CORRECTIONS_FIELD_NUMBER: _ClassVar[int]
    RANSOM_SEED_FIELD_NUMBER: _ClassVar[int]
    net: str
    net_param: NetParameter
    train_net: str
    test_net: _containers.RepeatedScalarFieldContainer[str]
    train_net_param: NetParameter
    test_net_param: _containers.RepeatedCompositeFieldContainer[NetParameter]
    train_state: NetState
    test_state: _containers.RepeatedCompositeFieldContainer[NetState]
    test_iter: _containers.RepeatedScalarFieldContainer[int]
    test_interval: int
    test_compute_loss: bool
    test_initialization: bool
    base_lr: float
    display: int
    average_loss: int
    max_iter: int
    iter_size: int
    lr_policy: str
    gamma: float
    power: float
    momentum: float
    weight_decay: float
    regularization_type: str
    stepsize: int
    stepvalue: _containers.RepeatedScalarFieldContainer[int]
    clip_gradients: float
    snapshot: int
    snapshot_prefix: str
    snapshot_diff: bool
    snapshot_format: SolverParameter.SnapshotFormat
    solver_mode: SolverParameter.SolverMode
    device_id: int
    random_seed: int
    type: str
    delta: float
    momentum2: float
    rms_decay: float
    debug_info: bool
    snapshot_after_train: bool
    solver_type: SolverParameter.SolverType
    layer_wise_reduce: bool
    weights: _containers.RepeatedScalarFieldContainer[str]
    plateau_winsize: _containers.RepeatedScalarFieldContainer[int]
    show_per_class_result: bool
    store_blobs_in_old_format: bool
    disabled_update: bool
    engine: str
    momentum_power: float
    larc: bool
    larc_policy: str
    gan_solver: bool
    test_offset: int
    weight_decay_power: float
    test_and_snapshot_last_epochs: int
    larc_turbo: bool
    max_weight_decay: float
    ap_version: str
    clamp_weights_lower: float
    clamp_weights_upper: float
    clip_weights: float
    eval_type: str
    group_id: _containers.RepeatedScalarFieldContainer[int]
    larc_eta: float
    local_gw_ratio: float
    local_lr_auto: bool
    max_momentum: float
    min_lr: float
    momentum_policy: str
    rampup_interval: int
    rampup_lr: float
    richness: int
    solver_data_type: Type
    stageiter: _containers.RepeatedScalarFieldContainer[int]
    stagelr: _containers.RepeatedScalarFieldContainer[float]
    warmup_iter: int
    warmup_start_lr: float
    weight_decay_policy: str
    stepearly: int
    adamw_decay: float
    custom_trainer: str
    custom_trainer_properties: str
    output_average_results: bool
    snapshot_include_weights: bool
    snapshot_include_state: bool
    accuracy_average_window: int
    enable_clip_gradient_status: bool
    verbose_optimization_output: bool
    use_test_net_for_running: bool
    use_training_net_for_testing: bool
    lbgfs_corrections: int
    ransom_seed: int
    def __init__(self, net: _Optional[str] = ..., net_param: _Optional[_Union[NetParameter, _Mapping]] = ..., train_net: _Optional[str] = ..., test_net: _Optional[_Iterable[str]] = ..., train_net_param: _Optional[_Union[NetParameter, _Mapping]] = ..., test_net_param: _Optional[_Iterable[_Union[NetParameter, _Mapping]]] = ..., train_state: _Optional[_Union[NetState, _Mapping]] = ..., test_state: _Optional[_Iterable[_Union[NetState, _Mapping]]] = ..., test_iter: _Optional[_Iterable[int]] = ..., test_interval: _Optional[int] = ..., test_compute_loss: _Optional[bool] = ..., test_initialization: _Optional[bool] = ..., base_lr: _Optional[float] = ..., display: _Optional[int] = ..., average_loss: _Optional[int] = ..., max_iter: _Optional[int] = ..., iter_size: _Optional[int] = ..., lr_policy: _Optional[str] = ..., gamma: _Optional[float] = ..., power: _Optional[float] = ..., momentum: _Optional[float] = ..., weight_decay: _Optional[float] = ..., regularization_type: _Optional[str] = ..., stepsize: _Optional[int] = ..., stepvalue: _Optional[_Iterable[int]] = ..., clip_gradients: _Optional[float] = ..., snapshot: _Optional[int] = ..., snapshot_prefix: _Optional[str] = ..., snapshot_diff: _Optional[bool] = ..., snapshot_format: _Optional[_Union[SolverParameter.SnapshotFormat, str]] = ..., solver_mode: _Optional[_Union[SolverParameter.SolverMode, str]] = ..., device_id: _Optional[int] = ..., random_seed: _Optional[int] = ..., type: _Optional[str] = ..., delta: _Optional[float] = ..., momentum2: _Optional[float] = ..., rms_decay: _Optional[float] = ..., debug_info: _Optional[bool] = ..., snapshot_after_train: _Optional[bool] = ..., solver_type: _Optional[_Union[SolverParameter.SolverType, str]] = ..., layer_wise_reduce: _Optional[bool] = ..., weights: _Optional[_Iterable[str]] = ..., plateau_winsize: _Optional[_Iterable[int]] = ..., show_per_class_result: _Optional[bool] = ..., store_blobs_in_old_format: _Optional[bool] = ..., disabled_update: _Optional[bool] = ..., engine: _Optional[str] = ..., momentum_power: _Optional[float] = ..., larc: _Optional[bool] = ..., larc_policy: _Optional[str] = ..., gan_solver: _Optional[bool] = ..., test_offset: _Optional[int] = ..., weight_decay_power: _Optional[float] = ..., test_and_snapshot_last_epochs: _Optional[int] = ..., larc_turbo: _Optional[bool] = ..., max_weight_decay: _Optional[float] = ..., ap_version: _Optional[str] = ..., clamp_weights_lower: _Optional[float] = ..., clamp_weights_upper: _Optional[float] = ..., clip_weights: _Optional[float] = ..., eval_type: _Optional[str] = ..., group_id: _Optional[_Iterable[int]] = ..., larc_eta: _Optional[float] = ..., local_gw_ratio: _Optional[float] = ..., local_lr_auto: _Optional[bool] = ..., max_momentum: _Optional[float] = ..., min_lr: _Optional[float] = ..., momentum_policy: _Optional[str] = ..., rampup_interval: _Optional[int] = ..., rampup_lr: _Optional[float] = ..., richness: _Optional[int] = ..., solver_data_type: _Optional[_Union[Type, str]] = ..., stageiter: _Optional[_Iterable[int]] = ..., stagelr: _Optional[_Iterable[float]] = ..., warmup_iter: _Optional[int] = ..., warmup_start_lr: _Optional[float] = ..., weight_decay_policy: _Optional[str] = ..., stepearly: _Optional[int] = ..., adamw_decay: _Optional[float] = ..., custom_trainer: _Optional[str] = ..., custom_trainer_properties: _Optional[str] = ..., output_average_results: _Optional[bool] = ..., snapshot_include_weights: _Optional[bool] = ..., snapshot_include_state: _Optional[bool] = ..., accuracy_average_window: _Optional[int] = ..., enable_clip_gradient_status: _Optional[bool] = ..., verbose_optimization_output: _Optional[bool] = ..., use_test_net_for_running: _Optional[bool] = ..., use_training_net_for_testing: _Optional[bool] = ..., lbgfs_corrections: _Optional[int] = ..., ransom_seed: _Optional[int] = ...) -> None: ...

class SolverState(_message.Message):
    __slots__ = ("iter", "learned_net", "history", "current_step", "minimum_loss", "iter_last_event")
    ITER_FIELD_NUMBER: _ClassVar[int]
    LEARNED_NET_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    CURRENT_STEP_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_LOSS_FIELD_NUMBER: _ClassVar[int]
    ITER_LAST_EVENT_FIELD_NUMBER: _ClassVar[int]
    iter: int
    learned_net: str
    history: _containers.RepeatedCompositeFieldContainer[BlobProto]
    current_step: int
    minimum_loss: float
    iter_last_event: int
    def __init__(self, iter: _Optional[int] = ..., learned_net: _Optional[str] = ..., history: _Optional[_Iterable[_Union[BlobProto, _Mapping]]] = ..., current_step: _Optional[int] = ..., minimum_loss: _Optional[float] = ..., iter_last_event: _Optional[int] = ...) -> None: ...

class NetState(_message.Message):
    __slots__ = ("phase", "level", "stage")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    phase: Phase
    level: int
    stage: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, phase: _Optional[_Union[Phase, str]] = ..., level: _Optional[int] = ..., stage: _Optional[_Iterable[str]] = ...) -> None: ...

class NetStateRule(_message.Message):
    __slots__ = ("phase", "min_level", "max_level", "stage", "not_stage")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    MIN_LEVEL_FIELD_NUMBER: _ClassVar[int]
    MAX_LEVEL_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    NOT_STAGE_FIELD_NUMBER: _ClassVar[int]
    phase: Phase
    min_level: int
    max_level: int
    stage: _containers.RepeatedScalarFieldContainer[str]
    not_stage: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, phase: _Optional[_Union[Phase, str]] = ..., min_level: _Optional[int] = ..., max_level: _Optional[int] = ..., stage: _Optional[_Iterable[str]] = ..., not_stage: _Optional[_Iterable[str]] = ...) -> None: ...

class ParamSpec(_message.Message):
    __slots__ = ("name", "share_mode", "lr_mult", "decay_mult")
    class DimCheckMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STRICT: _ClassVar[ParamSpec.DimCheckMode]
        PERMISSIVE: _ClassVar[ParamSpec.DimCheckMode]
    STRICT: ParamSpec.DimCheckMode
    PERMISSIVE: ParamSpec.DimCheckMode
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHARE_MODE_FIELD_NUMBER: _ClassVar[int]
    LR_MULT_FIELD_NUMBER: _ClassVar[int]
    DECAY_MULT_FIELD_NUMBER: _ClassVar[int]
    name: str
    share_mode: ParamSpec.DimCheckMode
    lr_mult: float
    decay_mult: float
    def __init__(self, name: _Optional[str] = ..., share_mode: _Optional[_Union[ParamSpec.DimCheckMode, str]] = ..., lr_mult: _Optional[float] = ..., decay_mult: _Optional[float] = ...) -> None: ...

class LayerParameter(_message.Message):
    __slots__ = ("name", "type", "bottom", "top", "phase", "loss_weight", "param", "blobs", "propagate_down", "include", "exclude", "transform_param", "loss_param", "accuracy_param", "argmax_param", "batch_norm_param", "bias_param", "clip_param", "concat_param", "contrastive_loss_param", "convolution_param", "crop_param", "data_param", "dropout_param", "dummy_data_param", "eltwise_param", "elu_param", "embed_param", "exp_param", "flatten_param", "hdf5_data_param", "hdf5_output_param", "hinge_loss_param", "image_data_param", "infogain_loss_param", "inner_product_param", "input_param", "log_param", "lrn_param", "memory_data_param", "mvn_param", "parameter_param", "pooling_param", "power_param", "prelu_param", "python_param", "recurrent_param", "reduction_param", "relu_param", "reshape_param", "scale_param", "sigmoid_param", "softmax_param", "spp_param", "slice_param", "swish_param", "tanh_param", "threshold_param", "tile_param", "window_data_param", "bn_param", "augmentation_param", "correlation_param", "l1_loss_param", "writer_param", "reader_param", "mean_param", "resample_param", "downsample_param", "reshape_every_iter", "lpq_loss_param", "flow_warp_param", "accum_param", "black_augmentation_param", "batch_reduction_param", "shuffle_channel_param", "gan_loss_param", "squeeze_convolution_param", "squeeze_inner_product_param", "yolo_v2_loss_param", "yolo_v3_loss_param", "annotated_data_param", "multibox_loss_param", "permute_param", "prior_box_param", "rnn_param", "detection_output_param", "detection_evaluate_param", "norm_param", "video_data_param", "depth_to_space_param", "predict_box_param", "fcn_data_param", "gather_param", "flip_param", "inner_distance_param", "nms_param", "general_contrastive_loss_param", "gather_nd_param", "general_triplet_loss_param", "soft_truncation_param", "where4_gathernd_param", "crop_and_resize_param", "pairwise_param", "pyramid_roi_align_param", "batch_contrastive_loss_param", "pad_param", "stack_param", "nca_param", "largemargin_inner_product_param", "label_specific_rescale_param", "infimum_loss_param", "ordinal_regression_loss_param", "reduce_mean_param", "selu_param", "feature_decay_loss_param", "confidence_penalty_loss_param", "batch_to_space_nd_param", "label_specific_margin_param", "channel_scale_param", "label_specific_affine_param", "label_specific_hard_margin_param", "expand_dims_nd_param", "label_specific_add_param", "broadcast_to_param", "strided_slice_param", "piece_param", "range_param", "sparse_to_dense_param", "roi_align_param", "embedding_lookup_param", "embedding_lookup_sparse_param", "gemm_param", "reduce_l1_param", "reduce_l2_param", "reduce_logsumexp_param", "reduce_all_param", "reduce_any_param", "reverse_sequence_param", "hard_sigmoid_param", "thresholded_relu_param", "one_hot_param", "reverse_param", "lp_normalization_param", "matmul_param", "gather_v2_param", "scaled_tanh_param", "pooling3d_param", "log_softmax_param", "maskrcnn_detection_param", "maskrcnn_proposal_param", "attention_param", "non_max_suppression_param", "rnn_v2_param", "count_nonzero_param", "not_equal_param", "point_net_param", "scatter_nd_param", "layer_norm_param", "mul_param", "spatial_batching_pooling_param", "tensor2box_param", "corr1d_param", "eval_detection_param", "yolo_detection_output_param", "yolov3_detection_output_param", "yolov3_param", "yolo_seg_param", "segmentation_evaluate_param", "convolution3d_param", "detectnet_groundtruth_param", "detectnet_augmentation_param", "adaptive_bias_channel_param", "backward_math", "backward_type", "bbox_reg_param", "bias_channel_param", "box_annotator_ohem_param", "box_group_output_param", "box_output_param", "center_loss_param", "coeff_schedule_param", "cudnn_math_override", "debug", "decode_bbox_param", "dense_crf_param", "dense_image_data_param", "detection_accuracy_param", "detection_data_param", "detection_group_accuracy_param", "detection_group_loss_param", "detection_loss_param", "domain_transform_param", "eltwise_affine_param", "engine", "eval_data_param", "focal_loss_param", "forward_math", "forward_type", "frcnn_output_param", "hard_mining_param", "hotspot_param", "insanity_param", "interp_param", "local_param", "margin_inner_product_param", "mask_resize_param", "mat_read_param", "mat_write_param", "mirror_pad_param", "mn_activation_param", "mn_grad_compress_param", "multi_stage_meanfield_param", "multinode", "nms_gather_param", "noise_param", "normalize_param", "padding_param", "proposal_param", "proposal_target_param", "psroi_pooling_param", "quantization_param", "reduce_max_param", "reduce_min_param", "reduce_prod_param", "reduce_sum_param", "region_loss_param", "relu6_param", "reorg_param", "resize_bilinear_param", "resize_nearest_neighbor_param", "resize_param", "roi_pooling_param", "roi_warping_param", "scale_route_param", "seg_accuracy_param", "seg_data_param", "selu_dropout_param", "smooth_l1_loss_param", "smoothl1_param", "soft_contrastive_loss_param", "softmaxloss_param", "space_to_batch_nd_param", "space_to_depth_param", "spatial_dropout_param", "split_param", "squeeze_param", "strict_dim", "sub_region_param", "tile_nd_param", "topk_gather_param", "triplet_loss_param", "trt_param", "truncation_param", "unique_label_param", "unpooling_param", "unstack_param", "upsample_darknet_param", "upsample_param", "where4_gathernd_crop_param", "where4_param", "xlu_param", "spatial_softmax_param", "eltwise_accuracy_param", "transpose_param", "continuation_indicator_param", "ctc_loss_param", "labelsequence_accuracy_param", "lstm_param", "ctc_decoder_param", "lstm_simple_param", "cosin_add_m_param", "gradient_scaler_param", "cpm_transform_param", "image_gt_data_param", "denseblock_param", "cpmdata_param", "mil_data_param", "mil_param", "group_start", "freeze_learning", "connect_loss_event", "use_halfsize", "debug_param", "data_sequence_param", "decode_param", "knn_param", "max_bottom_count", "filter_param", "normalization2_param", "multiboxloss_param")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    BOTTOM_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    LOSS_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    PARAM_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    PROPAGATE_DOWN_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    TRANSFORM_PARAM_FIELD_NUMBER: _ClassVar[int]
    LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_PARAM_FIELD_NUMBER: _ClassVar[int]
    ARGMAX_PARAM_FIELD_NUMBER: _ClassVar[int]
    BATCH_NORM_PARAM_FIELD_NUMBER: _ClassVar[int]
    BIAS_PARAM_FIELD_NUMBER: _ClassVar[int]
    CLIP_PARAM_FIELD_NUMBER: _ClassVar[int]
    CONCAT_PARAM_FIELD_NUMBER: _ClassVar[int]
    CONTRASTIVE_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    CONVOLUTION_PARAM_FIELD_NUMBER: _ClassVar[int]
    CROP_PARAM_FIELD_NUMBER: _ClassVar[int]
    DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    DROPOUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    DUMMY_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    ELTWISE_PARAM_FIELD_NUMBER: _ClassVar[int]
    ELU_PARAM_FIELD_NUMBER: _ClassVar[int]
    EMBED_PARAM_FIELD_NUMBER: _ClassVar[int]
    EXP_PARAM_FIELD_NUMBER: _ClassVar[int]
    FLATTEN_PARAM_FIELD_NUMBER: _ClassVar[int]
    HDF5_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    HDF5_OUTPUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    HINGE_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    IMAGE_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    INFOGAIN_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    INNER_PRODUCT_PARAM_FIELD_NUMBER: _ClassVar[int]
    INPUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    LOG_PARAM_FIELD_NUMBER: _ClassVar[int]
    LRN_PARAM_FIELD_NUMBER: _ClassVar[int]
    MEMORY_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    MVN_PARAM_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_PARAM_FIELD_NUMBER: _ClassVar[int]
    POOLING_PARAM_FIELD_NUMBER: _ClassVar[int]
    POWER_PARAM_FIELD_NUMBER: _ClassVar[int]
    PRELU_PARAM_FIELD_NUMBER: _ClassVar[int]
    PYTHON_PARAM_FIELD_NUMBER: _ClassVar[int]
    RECURRENT_PARAM_FIELD_NUMBER: _ClassVar[int]
    REDUCTION_PARAM_FIELD_NUMBER: _ClassVar[int]
    RELU_PARAM_FIELD_NUMBER: _ClassVar[int]
    RESHAPE_PARAM_FIELD_NUMBER: _ClassVar[int]
    SCALE_PARAM_FIELD_NUMBER: _ClassVar[int]
    SIGMOID_PARAM_FIELD_NUMBER: _ClassVar[int]
    SOFTMAX_PARAM_FIELD_NUMBER: _ClassVar[int]
    SPP_PARAM_FIELD_NUMBER: _ClassVar[int]
    SLICE_PARAM_FIELD_NUMBER: _ClassVar[int]
    SWISH_PARAM_FIELD_NUMBER: _ClassVar[int]
    TANH_PARAM_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_PARAM_FIELD_NUMBER: _ClassVar[int]
    TILE_PARAM_FIELD_NUMBER: _ClassVar[int]
    WINDOW_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    BN_PARAM_FIELD_NUMBER: _ClassVar[int]
    AUGMENTATION_PARAM_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_PARAM_FIELD_NUMBER: _ClassVar[int]
    L1_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    WRITER_PARAM_FIELD_NUMBER: _ClassVar[int]
    READER_PARAM_FIELD_NUMBER: _ClassVar[int]
    MEAN_PARAM_FIELD_NUMBER: _ClassVar[int]
    RESAMPLE_PARAM_FIELD_NUMBER: _ClassVar[int]
    DOWNSAMPLE_PARAM_FIELD_NUMBER: _ClassVar[int]
    RESHAPE_EVERY_ITER_FIELD_NUMBER: _ClassVar[int]
    LPQ_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    FLOW_WARP_PARAM_FIELD_NUMBER: _ClassVar[int]
    ACCUM_PARAM_FIELD_NUMBER: _ClassVar[int]
    BLACK_AUGMENTATION_PARAM_FIELD_NUMBER: _ClassVar[int]
    BATCH_REDUCTION_PARAM_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_CHANNEL_PARAM_FIELD_NUMBER: _ClassVar[int]
    GAN_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    SQUEEZE_CONVOLUTION_PARAM_FIELD_NUMBER: _ClassVar[int]
    SQUEEZE_INNER_PRODUCT_PARAM_FIELD_NUMBER: _ClassVar[int]
    YOLO_V2_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    YOLO_V3_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    ANNOTATED_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    MULTIBOX_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    PERMUTE_PARAM_FIELD_NUMBER: _ClassVar[int]
    PRIOR_BOX_PARAM_FIELD_NUMBER: _ClassVar[int]
    RNN_PARAM_FIELD_NUMBER: _ClassVar[int]
    DETECTION_OUTPUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    DETECTION_EVALUATE_PARAM_FIELD_NUMBER: _ClassVar[int]
    NORM_PARAM_FIELD_NUMBER: _ClassVar[int]
    VIDEO_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    DEPTH_TO_SPACE_PARAM_FIELD_NUMBER: _ClassVar[int]
    PREDICT_BOX_PARAM_FIELD_NUMBER: _ClassVar[int]
    FCN_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    GATHER_PARAM_FIELD_NUMBER: _ClassVar[int]
    FLIP_PARAM_FIELD_NUMBER: _ClassVar[int]
    INNER_DISTANCE_PARAM_FIELD_NUMBER: _ClassVar[int]
    NMS_PARAM_FIELD_NUMBER: _ClassVar[int]
    GENERAL_CONTRASTIVE_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    GATHER_ND_PARAM_FIELD_NUMBER: _ClassVar[int]
    GENERAL_TRIPLET_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    SOFT_TRUNCATION_PARAM_FIELD_NUMBER: _ClassVar[int]
    WHERE4_GATHERND_PARAM_FIELD_NUMBER: _ClassVar[int]
    CROP_AND_RESIZE_PARAM_FIELD_NUMBER: _ClassVar[int]
    PAIRWISE_PARAM_FIELD_NUMBER: _ClassVar[int]
    PYRAMID_ROI_ALIGN_PARAM_FIELD_NUMBER: _ClassVar[int]
    BATCH_CONTRASTIVE_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    PAD_PARAM_FIELD_NUMBER: _ClassVar[int]
    STACK_PARAM_FIELD_NUMBER: _ClassVar[int]
    NCA_PARAM_FIELD_NUMBER: _ClassVar[int]
    LARGEMARGIN_INNER_PRODUCT_PARAM_FIELD_NUMBER: _ClassVar[int]
    LABEL_SPECIFIC_RESCALE_PARAM_FIELD_NUMBER: _ClassVar[int]
    INFIMUM_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    ORDINAL_REGRESSION_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    REDUCE_MEAN_PARAM_FIELD_NUMBER: _ClassVar[int]
    SELU_PARAM_FIELD_NUMBER: _ClassVar[int]
    FEATURE_DECAY_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_PENALTY_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    BATCH_TO_SPACE_ND_PARAM_FIELD_NUMBER: _ClassVar[int]
    LABEL_SPECIFIC_MARGIN_PARAM_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_SCALE_PARAM_FIELD_NUMBER: _ClassVar[int]
    LABEL_SPECIFIC_AFFINE_PARAM_FIELD_NUMBER: _ClassVar[int]
    LABEL_SPECIFIC_HARD_MARGIN_PARAM_FIELD_NUMBER: _ClassVar[int]
    EXPAND_DIMS_ND_PARAM_FIELD_NUMBER: _ClassVar[int]
    LABEL_SPECIFIC_ADD_PARAM_FIELD_NUMBER: _ClassVar[int]
    BROADCAST_TO_PARAM_FIELD_NUMBER: _ClassVar[int]
    STRIDED_SLICE_PARAM_FIELD_NUMBER: _ClassVar[int]
    PIECE_PARAM_FIELD_NUMBER: _ClassVar[int]
    RANGE_PARAM_FIELD_NUMBER: _ClassVar[int]
    SPARSE_TO_DENSE_PARAM_FIELD_NUMBER: _ClassVar[int]
    ROI_ALIGN_PARAM_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_LOOKUP_PARAM_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_LOOKUP_SPARSE_PARAM_FIELD_NUMBER: _ClassVar[int]
    GEMM_PARAM_FIELD_NUMBER: _ClassVar[int]
    REDUCE_L1_PARAM_FIELD_NUMBER: _ClassVar[int]
    REDUCE_L2_PARAM_FIELD_NUMBER: _ClassVar[int]
    REDUCE_LOGSUMEXP_PARAM_FIELD_NUMBER: _ClassVar[int]
    REDUCE_ALL_PARAM_FIELD_NUMBER: _ClassVar[int]
    REDUCE_ANY_PARAM_FIELD_NUMBER: _ClassVar[int]
    REVERSE_SEQUENCE_PARAM_FIELD_NUMBER: _ClassVar[int]
    HARD_SIGMOID_PARAM_FIELD_NUMBER: _ClassVar[int]
    THRESHOLDED_RELU_PARAM_FIELD_NUMBER: _ClassVar[int]
    ONE_HOT_PARAM_FIELD_NUMBER: _ClassVar[int]
    REVERSE_PARAM_FIELD_NUMBER: _ClassVar[int]
    LP_NORMALIZATION_PARAM_FIELD_NUMBER: _ClassVar[int]
    MATMUL_PARAM_FIELD_NUMBER: _ClassVar[int]
    GATHER_V2_PARAM_FIELD_NUMBER: _ClassVar[int]
    SCALED_TANH_PARAM_FIELD_NUMBER: _ClassVar[int]
    POOLING3D_PARAM_FIELD_NUMBER: _ClassVar[int]
    LOG_SOFTMAX_PARAM_FIELD_NUMBER: _ClassVar[int]
    MASKRCNN_DETECTION_PARAM_FIELD_NUMBER: _ClassVar[int]
    MASKRCNN_PROPOSAL_PARAM_FIELD_NUMBER: _ClassVar[int]
    ATTENTION_PARAM_FIELD_NUMBER: _ClassVar[int]
    NON_MAX_SUPPRESSION_PARAM_FIELD_NUMBER: _ClassVar[int]
    RNN_V2_PARAM_FIELD_NUMBER: _ClassVar[int]
    COUNT_NONZERO_PARAM_FIELD_NUMBER: _ClassVar[int]
    NOT_EQUAL_PARAM_FIELD_NUMBER: _ClassVar[int]
    POINT_NET_PARAM_FIELD_NUMBER: _ClassVar[int]
    SCATTER_ND_PARAM_FIELD_NUMBER: _ClassVar[int]
    LAYER_NORM_PARAM_FIELD_NUMBER: _ClassVar[int]
    MUL_PARAM_FIELD_NUMBER: _ClassVar[int]
    SPATIAL_BATCHING_POOLING_PARAM_FIELD_NUMBER: _ClassVar[int]
    TENSOR2BOX_PARAM_FIELD_NUMBER: _ClassVar[int]
    CORR1D_PARAM_FIELD_NUMBER: _ClassVar[int]
    EVAL_DETECTION_PARAM_FIELD_NUMBER: _ClassVar[int]
    YOLO_DETECTION_OUTPUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    YOLOV3_DETECTION_OUTPUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    YOLOV3_PARAM_FIELD_NUMBER: _ClassVar[int]
    YOLO_SEG_PARAM_FIELD_NUMBER: _ClassVar[int]
    SEGMENTATION_EVALUATE_PARAM_FIELD_NUMBER: _ClassVar[int]
    CONVOLUTION3D_PARAM_FIELD_NUMBER: _ClassVar[int]
    DETECTNET_GROUNDTRUTH_PARAM_FIELD_NUMBER: _ClassVar[int]
    DETECTNET_AUGMENTATION_PARAM_FIELD_NUMBER: _ClassVar[int]
    ADAPTIVE_BIAS_CHANNEL_PARAM_FIELD_NUMBER: _ClassVar[int]
    BACKWARD_MATH_FIELD_NUMBER: _ClassVar[int]
    BACKWARD_TYPE_FIELD_NUMBER: _ClassVar[int]
    BBOX_REG_PARAM_FIELD_NUMBER: _ClassVar[int]
    BIAS_CHANNEL_PARAM_FIELD_NUMBER: _ClassVar[int]
    BOX_ANNOTATOR_OHEM_PARAM_FIELD_NUMBER: _ClassVar[int]
    BOX_GROUP_OUTPUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    BOX_OUTPUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    CENTER_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    COEFF_SCHEDULE_PARAM_FIELD_NUMBER: _ClassVar[int]
    CUDNN_MATH_OVERRIDE_FIELD_NUMBER: _ClassVar[int]
    DEBUG_FIELD_NUMBER: _ClassVar[int]
    DECODE_BBOX_PARAM_FIELD_NUMBER: _ClassVar[int]
    DENSE_CRF_PARAM_FIELD_NUMBER: _ClassVar[int]
    DENSE_IMAGE_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    DETECTION_ACCURACY_PARAM_FIELD_NUMBER: _ClassVar[int]
    DETECTION_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    DETECTION_GROUP_ACCURACY_PARAM_FIELD_NUMBER: _ClassVar[int]
    DETECTION_GROUP_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    DETECTION_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_TRANSFORM_PARAM_FIELD_NUMBER: _ClassVar[int]
    ELTWISE_AFFINE_PARAM_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    EVAL_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    FOCAL_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    FORWARD_MATH_FIELD_NUMBER: _ClassVar[int]
    FORWARD_TYPE_FIELD_NUMBER: _ClassVar[int]
    FRCNN_OUTPUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    HARD_MINING_PARAM_FIELD_NUMBER: _ClassVar[int]
    HOTSPOT_PARAM_FIELD_NUMBER: _ClassVar[int]
    INSANITY_PARAM_FIELD_NUMBER: _ClassVar[int]
    INTERP_PARAM_FIELD_NUMBER: _ClassVar[int]
    LOCAL_PARAM_FIELD_NUMBER: _ClassVar[int]
    MARGIN_INNER_PRODUCT_PARAM_FIELD_NUMBER: _ClassVar[int]
    MASK_RESIZE_PARAM_FIELD_NUMBER: _ClassVar[int]
    MAT_READ_PARAM_FIELD_NUMBER: _ClassVar[int]
    MAT_WRITE_PARAM_FIELD_NUMBER: _ClassVar[int]
    MIRROR_PAD_PARAM_FIELD_NUMBER: _ClassVar[int]
    MN_ACTIVATION_PARAM_FIELD_NUMBER: _ClassVar[int]
    MN_GRAD_COMPRESS_PARAM_FIELD_NUMBER: _ClassVar[int]
    MULTI_STAGE_MEANFIELD_PARAM_FIELD_NUMBER: _ClassVar[int]
    MULTINODE_FIELD_NUMBER: _ClassVar[int]
    NMS_GATHER_PARAM_FIELD_NUMBER: _ClassVar[int]
    NOISE_PARAM_FIELD_NUMBER: _ClassVar[int]
    NORMALIZE_PARAM_FIELD_NUMBER: _ClassVar[int]
    PADDING_PARAM_FIELD_NUMBER: _ClassVar[int]
    PROPOSAL_PARAM_FIELD_NUMBER: _ClassVar[int]
    PROPOSAL_TARGET_PARAM_FIELD_NUMBER: _ClassVar[int]
    PSROI_POOLING_PARAM_FIELD_NUMBER: _ClassVar[int]
    QUANTIZATION_PARAM_FIELD_NUMBER: _ClassVar[int]
    REDUCE_MAX_PARAM_FIELD_NUMBER: _ClassVar[int]
    REDUCE_MIN_PARAM_FIELD_NUMBER: _ClassVar[int]
    REDUCE_PROD_PARAM_FIELD_NUMBER: _ClassVar[int]
    REDUCE_SUM_PARAM_FIELD_NUMBER: _ClassVar[int]
    REGION_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    RELU6_PARAM_FIELD_NUMBER: _ClassVar[int]
    REORG_PARAM_FIELD_NUMBER: _ClassVar[int]
    RESIZE_BILINEAR_PARAM_FIELD_NUMBER: _ClassVar[int]
    RESIZE_NEAREST_NEIGHBOR_PARAM_FIELD_NUMBER: _ClassVar[int]
    RESIZE_PARAM_FIELD_NUMBER: _ClassVar[int]
    ROI_POOLING_PARAM_FIELD_NUMBER: _ClassVar[int]
    ROI_WARPING_PARAM_FIELD_NUMBER: _ClassVar[int]
    SCALE_ROUTE_PARAM_FIELD_NUMBER: _ClassVar[int]
    SEG_ACCURACY_PARAM_FIELD_NUMBER: _ClassVar[int]
    SEG_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    SELU_DROPOUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    SMOOTH_L1_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    SMOOTHL1_PARAM_FIELD_NUMBER: _ClassVar[int]
    SOFT_CONTRASTIVE_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    SOFTMAXLOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    SPACE_TO_BATCH_ND_PARAM_FIELD_NUMBER: _ClassVar[int]
    SPACE_TO_DEPTH_PARAM_FIELD_NUMBER: _ClassVar[int]
    SPATIAL_DROPOUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    SPLIT_PARAM_FIELD_NUMBER: _ClassVar[int]
    SQUEEZE_PARAM_FIELD_NUMBER: _ClassVar[int]
    STRICT_DIM_FIELD_NUMBER: _ClassVar[int]
    SUB_REGION_PARAM_FIELD_NUMBER: _ClassVar[int]
    TILE_ND_PARAM_FIELD_NUMBER: _ClassVar[int]
    TOPK_GATHER_PARAM_FIELD_NUMBER: _ClassVar[int]
    TRIPLET_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    TRT_PARAM_FIELD_NUMBER: _ClassVar[int]
    TRUNCATION_PARAM_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_LABEL_PARAM_FIELD_NUMBER: _ClassVar[int]
    UNPOOLING_PARAM_FIELD_NUMBER: _ClassVar[int]
    UNSTACK_PARAM_FIELD_NUMBER: _ClassVar[int]
    UPSAMPLE_DARKNET_PARAM_FIELD_NUMBER: _ClassVar[int]
    UPSAMPLE_PARAM_FIELD_NUMBER: _ClassVar[int]
    WHERE4_GATHERND_CROP_PARAM_FIELD_NUMBER: _ClassVar[int]
    WHERE4_PARAM_FIELD_NUMBER: _ClassVar[int]
    XLU_PARAM_FIELD_NUMBER: _ClassVar[int]
    SPATIAL_SOFTMAX_PARAM_FIELD_NUMBER: _ClassVar[int]
    ELTWISE_ACCURACY_PARAM_FIELD_NUMBER: _ClassVar[int]
    TRANSPOSE_PARAM_FIELD_NUMBER: _ClassVar[int]
    CONTINUATION_INDICATOR_PARAM_FIELD_NUMBER: _ClassVar[int]
    CTC_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    LABELSEQUENCE_ACCURACY_PARAM_FIELD_NUMBER: _ClassVar[int]
    LSTM_PARAM_FIELD_NUMBER: _ClassVar[int]
    CTC_DECODER_PARAM_FIELD_NUMBER: _ClassVar[int]
    LSTM_SIMPLE_PARAM_FIELD_NUMBER: _ClassVar[int]
    COSIN_ADD_M_PARAM_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_SCALER_PARAM_FIELD_NUMBER: _ClassVar[int]
    CPM_TRANSFORM_PARAM_FIELD_NUMBER: _ClassVar[int]
    IMAGE_GT_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    DENSEBLOCK_PARAM_FIELD_NUMBER: _ClassVar[int]
    CPMDATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    MIL_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    MIL_PARAM_FIELD_NUMBER: _ClassVar[int]
    GROUP_START_FIELD_NUMBER: _ClassVar[int]
    FREEZE_LEARNING_FIELD_NUMBER: _ClassVar[int]
    CONNECT_LOSS_EVENT_FIELD_NUMBER: _ClassVar[int]
    USE_HALFSIZE_FIELD_NUMBER: _ClassVar[int]
    DEBUG_PARAM_FIELD_NUMBER: _ClassVar[int]
    DATA_SEQUENCE_PARAM_FIELD_NUMBER: _ClassVar[int]
    DECODE_PARAM_FIELD_NUMBER: _ClassVar[int]
    KNN_PARAM_FIELD_NUMBER: _ClassVar[int]
    MAX_BOTTOM_COUNT_FIELD_NUMBER: _ClassVar[int]
    FILTER_PARAM_FIELD_NUMBER: _ClassVar[int]
    NORMALIZATION2_PARAM_FIELD_NUMBER: _ClassVar[int]
    MULTIBOXLOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    bottom: _containers.RepeatedScalarFieldContainer[str]
    top: _containers.RepeatedScalarFieldContainer[str]
    phase: Phase
    loss_weight: _containers.RepeatedScalarFieldContainer[float]
    param: _containers.RepeatedCompositeFieldContainer[ParamSpec]
    blobs: _containers.RepeatedCompositeFieldContainer[BlobProto]
    propagate_down: _containers.RepeatedScalarFieldContainer[bool]
    include: _containers.RepeatedCompositeFieldContainer[NetStateRule]
    exclude: _containers.RepeatedCompositeFieldContainer[NetStateRule]
    transform_param: TransformationParameter
    loss_param: LossParameter
    accuracy_param: AccuracyParameter
    argmax_param: ArgMaxParameter
    batch_norm_param: BatchNormParameter
    bias_param: BiasParameter
    clip_param: ClipParameter
    concat_param: ConcatParameter
    contrastive_loss_param: ContrastiveLossParameter
    convolution_param: ConvolutionParameter
    crop_param: CropParameter
    data_param: DataParameter
    dropout_param: DropoutParameter
    dummy_data_param: DummyDataParameter
    eltwise_param: EltwiseParameter
    elu_param: ELUParameter
    embed_param: EmbedParameter
    exp_param: ExpParameter
    flatten_param: FlattenParameter
    hdf5_data_param: HDF5DataParameter
    hdf5_output_param: HDF5OutputParameter
    hinge_loss_param: HingeLossParameter
    image_data_param: ImageDataParameter
    infogain_loss_param: InfogainLossParameter
    inner_product_param: InnerProductParameter
    input_param: InputParameter
    log_param: LogParameter
    lrn_param: LRNParameter
    memory_data_param: MemoryDataParameter
    mvn_param: MVNParameter
    parameter_param: ParameterParameter
    pooling_param: PoolingParameter
    power_param: PowerParameter
    prelu_param: PReLUParameter
    python_param: PythonParameter
    recurrent_param: RecurrentParameter
    reduction_param: ReductionParameter
    relu_param: ReLUParameter
    reshape_param: ReshapeParameter
    scale_param: ScaleParameter
    sigmoid_param: SigmoidParameter
    softmax_param: SoftmaxParameter
    spp_param: SPPParameter
    slice_param: SliceParameter
    swish_param: SwishParameter
    tanh_param: TanHParameter
    threshold_param: ThresholdParameter
    tile_param: TileParameter
    window_data_param: WindowDataParameter
    bn_param: BNParameter
    augmentation_param: AugmentationParameter
    correlation_param: CorrelationParameter
    l1_loss_param: L1LossParameter
    writer_param: WriterParameter
    reader_param: ReaderParameter
    mean_param: MeanParameter
    resample_param: ResampleParameter
    downsample_param: DownsampleParameter
    reshape_every_iter: bool
    lpq_loss_param: LpqLossParameter
    flow_warp_param: FlowWarpParameter
    accum_param: AccumParameter
    black_augmentation_param: BlackAugmentationParameter
    batch_reduction_param: BatchReductionParameter
    shuffle_channel_param: ShuffleChannelParameter
    gan_loss_param: GANLossParameter
    squeeze_convolution_param: SqueezeConvolutionParameter
    squeeze_inner_product_param: SqueezeInnerProductParameter
    yolo_v2_loss_param: YoloV2LossParameter
    yolo_v3_loss_param: YoloV3LossParameter
    annotated_data_param: AnnotatedDataParameter
    multibox_loss_param: MultiBoxLossParameter
    permute_param: PermuteParameter
    prior_box_param: PriorBoxParameter
    rnn_param: RNNParameter
    detection_output_param: DetectionOutputParameter
    detection_evaluate_param: DetectionEvaluateParameter
    norm_param: NormalizeParameter
    video_data_param: VideoDataParameter
    depth_to_space_param: DepthToSpaceParameter
    predict_box_param: PredictBoxParameter
    fcn_data_param: FCNDataParameter
    gather_param: GatherParameter
    flip_param: FlipParameter
    inner_distance_param: InnerDistanceParameter
    nms_param: NMSParameter
    general_contrastive_loss_param: GeneralContrastiveParameter
    gather_nd_param: GatherNDParameter
    general_triplet_loss_param: GeneralTripletParameter
    soft_truncation_param: SoftTruncationParameter
    where4_gathernd_param: Where4GatherndParameter
    crop_and_resize_param: CropAndResizeParameter
    pairwise_param: PairwiseParameter
    pyramid_roi_align_param: PyramidROIAlignParameter
    batch_contrastive_loss_param: BatchContrastiveParameter
    pad_param: PadParameter
    stack_param: StackParameter
    nca_param: NCAParameter
    largemargin_inner_product_param: LargeMarginInnerProductParameter
    label_specific_rescale_param: LabelSpecificRescaleParameter
    infimum_loss_param: InfimumLossParamter
    ordinal_regression_loss_param: OrdinalRegressionParameter
    reduce_mean_param: ReduceMeanParameter
    selu_param: SeLUParameter
    feature_decay_loss_param: FeatureDecayLossParameter
    confidence_penalty_loss_param: ConfidencePenaltyLossParameter
    batch_to_space_nd_param: BatchToSpaceNDParameter
    label_specific_margin_param: LabelSpecificMarginParameter
    channel_scale_param: ChannelScaleParameter
    label_specific_affine_param: LabelSpecificAffineParameter
    label_specific_hard_margin_param: LabelSpecificHardMarginParameter
    expand_dims_nd_param: ExpandDimsNDParameter
    label_specific_add_param: LabelSpecificAddParameter
    broadcast_to_param: BroadcastToParameter
    strided_slice_param: StridedSliceParameter
    piece_param: PieceParameter
    range_param: RangeParameter
    sparse_to_dense_param: SparseToDenseParameter
    roi_align_param: ROIAlignParameter
    embedding_lookup_param: EmbeddingLookupParameter
    embedding_lookup_sparse_param: EmbeddingLookupSparseParameter
    gemm_param: GemmParameter
    reduce_l1_param: ReduceL1Parameter
    reduce_l2_param: ReduceL2Parameter
    reduce_logsumexp_param: ReduceLogSumExpParameter
    reduce_all_param: ReduceAllParameter
    reduce_any_param: ReduceAnyParameter
    reverse_sequence_param: ReverseSequenceParameter
    hard_sigmoid_param: HardSigmoidParameter
    thresholded_relu_param: ThresholdedReLUParameter
    one_hot_param: OneHotParameter
    reverse_param: ReverseParameter
    lp_normalization_param: LpNormalizationParameter
    matmul_param: MatMulParameter
    gather_v2_param: GatherV2Parameter
    scaled_tanh_param: ScaledTanHParameter
    pooling3d_param: Pooling3DParameter
    log_softmax_param: LogSoftmaxParameter
    maskrcnn_detection_param: MaskRCNNDetectionParameter
    maskrcnn_proposal_param: MaskRCNNProposalParameter
    attention_param: AttentionParameter
    non_max_suppression_param: NonMaxSuppressionParameter
    rnn_v2_param: RNNv2Parameter
    count_nonzero_param: CountNonzeroParameter
    not_equal_param: NotEqualParameter
    point_net_param: PointNetParameter
    scatter_nd_param: ScatterNDParameter
    layer_norm_param: LayerNormParameter
    mul_param: MulParameter
    spatial_batching_pooling_param: SpatialBatchingPoolingParameter
    tensor2box_param: Tensor2BoxParameter
    corr1d_param: Corr1dParameter
    eval_detection_param: EvalDetectionParameter
    yolo_detection_output_param: YoloDetectionOutputParameter
    yolov3_detection_output_param: Yolov3DetectionOutputParameter
    yolov3_param: Yolov3Parameter
    yolo_seg_param: YoloSegParameter
    segmentation_evaluate_param: SegmentationEvaluateParameter
    convolution3d_param: Convolution3DParameter
    detectnet_groundtruth_param: DetectNetGroundTruthParameter
    detectnet_augmentation_param: DetectNetAugmentationParameter
    adaptive_bias_channel_param: AdaptiveBiasChannelParameter
    backward_math: Type
    backward_type: Type
    bbox_reg_param: BBoxRegParameter
    bias_channel_param: BiasChannelParameter
    box_annotator_ohem_param: BoxAnnotatorOHEMParameter
    box_group_output_param: BoxGroupOutputParameter
    box_output_param: BoxOutputParameter
    center_loss_param: CenterLossParameter
    coeff_schedule_param: CoeffScheduleParameter
    cudnn_math_override: int
    debug: bool
    decode_bbox_param: DecodeBBoxParameter
    dense_crf_param: DenseCRFParameter
    dense_image_data_param: DenseImageDataParameter
    detection_accuracy_param: DetectionAccuracyParameter
    detection_data_param: DetectionDataParameter
    detection_group_accuracy_param: DetectionGroupAccuracyParameter
    detection_group_loss_param: DetectionGroupLossParameter
    detection_loss_param: DetectionLossParameter
    domain_transform_param: DomainTransformParameter
    eltwise_affine_param: EltwiseAffineParameter
    engine: str
    eval_data_param: EvalDataParameter
    focal_loss_param: FocalLossParameter
    forward_math: Type
    forward_type: Type
    frcnn_output_param: FrcnnOutputParameter
    hard_mining_param: HardMiningParameter
    hotspot_param: HotspotParameter
    insanity_param: InsanityParameter
    interp_param: InterpParameter
    local_param: LocalParameter
    margin_inner_product_param: MarginInnerProductParameter
    mask_resize_param: MaskResizeParameter
    mat_read_param: MatReadParameter
    mat_write_param: MatWriteParameter
    mirror_pad_param: MirrorPadParameter
    mn_activation_param: MnActivationParameter
    mn_grad_compress_param: MnParamGradCompressParameter
    multi_stage_meanfield_param: MultiStageMeanfieldParameter
    multinode: MultinodeLayerParameter
    nms_gather_param: NMSGatherParameter
    noise_param: NoiseParameter
    normalize_param: NormalizeParameter
    padding_param: PaddingParameter
    proposal_param: ProposalParameter
    proposal_target_param: ProposalTargetParameter
    psroi_pooling_param: PSROIPoolingParameter
    quantization_param: QuantizationParameter
    reduce_max_param: ReduceMaxParameter
    reduce_min_param: ReduceMinParameter
    reduce_prod_param: ReduceProdParameter
    reduce_sum_param: ReduceSumParameter
    region_loss_param: RegionLossParameter
    relu6_param: ReLUParameter
    reorg_param: ReorgParameter
    resize_bilinear_param: ResizeBilinearParameter
    resize_nearest_neighbor_param: ResizeNearestNeighborParameter
    resize_param: ResizeParameter
    roi_pooling_param: ROIPoolingParameter
    roi_warping_param: ROIWarpingParameter
    scale_route_param: ScaleRouteParameter
    seg_accuracy_param: SegAccuracyParameter
    seg_data_param: SegDataParameter
    selu_dropout_param: SeLUDropoutParameter
    smooth_l1_loss_param: SmoothL1LossParameter
    smoothl1_param: SmoothL1Parameter
    soft_contrastive_loss_param: SoftContrastiveParameter
    softmaxloss_param: SoftmaxLossParameter
    space_to_batch_nd_param: SpaceToBatchNDParameter
    space_to_depth_param: SpaceToDepthParameter
    spatial_dropout_param: SpatialDropoutParameter
    split_param: SplitParameter
    squeeze_param: SqueezeParameter
    strict_dim: bool
    sub_region_param: SubRegionParameter
    tile_nd_param: TileNDParameter
    topk_gather_param: TopkGatherParameter
    triplet_loss_param: TripletLossParameter
    trt_param: TRTParameter
    truncation_param: TruncationParameter
    unique_label_param: UniqueLabelParameter
    unpooling_param: UnpoolingParameter
    unstack_param: UnstackParameter
    upsample_darknet_param: UpsampleDarknetParameter
    upsample_param: UpsampleParameter
    where4_gathernd_crop_param: Where4GatherndCropParameter
    where4_param: Where4Parameter
    xlu_param: XLUParameter
    spatial_softmax_param: SpatialSoftmaxParameter
    eltwise_accuracy_param: EltwiseAccuracyParameter
    transpose_param: TransposeParameter
    continuation_indicator_param: ContinuationIndicatorParameter
    ctc_loss_param: CtcLossParameter
    labelsequence_accuracy_param: LabelsequenceAccuracyParameter
    lstm_param: LSTMParameter
    ctc_decoder_param: CTCDecoderParameter
    lstm_simple_param: LSTMParameter
    cosin_add_m_param: CosinAddmParameter
    gradient_scaler_param: GradientScalerParameter
    cpm_transform_param: CPMTransformationParameter
    image_gt_data_param: ImageGtDataParameter
    denseblock_param: DenseBlockParameter
    cpmdata_param: CPMDataParameter
    mil_data_param: MILDataParameter
    mil_param: MILParameter
    group_start: bool
    freeze_learning: bool
    connect_loss_event: bool
    use_halfsize: bool
    debug_param: DebugParameter
    data_sequence_param: DataSequenceParameter
    decode_param: DecodeParameter
    knn_param: KnnParameter
    max_bottom_count: MaxBottomCount
    filter_param: FilterParameter
    normalization2_param: NormalizeParameter
    multiboxloss_param: MultiBoxLossParameter
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., bottom: _Optional[_Iterable[str]] = ..., top: _Optional[_Iterable[str]] = ..., phase: _Optional[_Union[Phase, str]] = ..., loss_weight: _Optional[_Iterable[float]] = ..., param: _Optional[_Iterable[_Union[ParamSpec, _Mapping]]] = ..., blobs: _Optional[_Iterable[_Union[BlobProto, _Mapping]]] = ..., propagate_down: _Optional[_Iterable[bool]] = ..., include: _Optional[_Iterable[_Union[NetStateRule, _Mapping]]] = ..., exclude: _Optional[_Iterable[_Union[NetStateRule, _Mapping]]] = ..., transform_param: _Optional[_Union[TransformationParameter, _Mapping]] = ..., loss_param: _Optional[_Union[LossParameter, _Mapping]] = ..., accuracy_param: _Optional[_Union[AccuracyParameter, _Mapping]] = ..., argmax_param: _Optional[_Union[ArgMaxParameter, _Mapping]] = ..., batch_norm_param: _Optional[_Union[BatchNormParameter, _Mapping]] = ..., bias_param: _Optional[_Union[BiasParameter, _Mapping]] = ..., clip_param: _Optional[_Union[ClipParameter, _Mapping]] = ..., concat_param: _Optional[_Union[ConcatParameter, _Mapping]] = ..., contrastive_loss_param: _Optional[_Union[ContrastiveLossParameter, _Mapping]] = ..., convolution_param: _Optional[_Union[ConvolutionParameter, _Mapping]] = ..., crop_param: _Optional[_Union[CropParameter, _Mapping]] = ..., data_param: _Optional[_Union[DataParameter, _Mapping]] = ..., dropout_param: _Optional[_Union[DropoutParameter, _Mapping]] = ..., dummy_data_param: _Optional[_Union[DummyDataParameter, _Mapping]] = ..., eltwise_param: _Optional[_Union[EltwiseParameter, _Mapping]] = ..., elu_param: _Optional[_Union[ELUParameter, _Mapping]] = ..., embed_param: _Optional[_Union[EmbedParameter, _Mapping]] = ..., exp_param: _Optional[_Union[ExpParameter, _Mapping]] = ..., flatten_param: _Optional[_Union[FlattenParameter, _Mapping]] = ..., hdf5_data_param: _Optional[_Union[HDF5DataParameter, _Mapping]] = ..., hdf5_output_param: _Optional[_Union[HDF5OutputParameter, _Mapping]] = ..., hinge_loss_param: _Optional[_Union[HingeLossParameter, _Mapping]] = ..., image_data_param: _Optional[_Union[ImageDataParameter, _Mapping]] = ..., infogain_loss_param: _Optional[_Union[InfogainLossParameter, _Mapping]] = ..., inner_product_param: _Optional[_Union[InnerProductParameter, _Mapping]] = ..., input_param: _Optional[_Union[InputParameter, _Mapping]] = ..., log_param: _Optional[_Union[LogParameter, _Mapping]] = ..., lrn_param: _Optional[_Union[LRNParameter, _Mapping]] = ..., memory_data_param: _Optional[_Union[MemoryDataParameter, _Mapping]] = ..., mvn_param: _Optional[_Union[MVNParameter, _Mapping]] = ..., parameter_param: _Optional[_Union[ParameterParameter, _Mapping]] = ..., pooling_param: _Optional[_Union[PoolingParameter, _Mapping]] = ..., power_param: _Optional[_Union[PowerParameter, _Mapping]] = ..., prelu_param: _Optional[_Union[PReLUParameter, _Mapping]] = ..., python_param: _Optional[_Union[PythonParameter, _Mapping]] = ..., recurrent_param: _Optional[_Union[RecurrentParameter, _Mapping]] = ..., reduction_param: _Optional[_Union[ReductionParameter, _Mapping]] = ..., relu_param: _Optional[_Union[ReLUParameter, _Mapping]] = ..., reshape_param: _Optional[_Union[ReshapeParameter, _Mapping]] = ..., scale_param: _Optional[_Union[ScaleParameter, _Mapping]] = ..., sigmoid_param: _Optional[_Union[SigmoidParameter, _Mapping]] = ..., softmax_param: _Optional[_Union[SoftmaxParameter, _Mapping]] = ..., spp_param: _Optional[_Union[SPPParameter, _Mapping]] = ..., slice_param: _Optional[_Union[SliceParameter, _Mapping]] = ..., swish_param: _Optional[_Union[SwishParameter, _Mapping]] = ..., tanh_param: _Optional[_Union[TanHParameter, _Mapping]] = ..., threshold_param: _Optional[_Union[ThresholdParameter, _Mapping]] = ..., tile_param: _Optional[_Union[TileParameter, _Mapping]] = ..., window_data_param: _Optional[_Union[WindowDataParameter, _Mapping]] = ..., bn_param: _Optional[_Union[BNParameter, _Mapping]] = ..., augmentation_param: _Optional[_Union[AugmentationParameter, _Mapping]] = ..., correlation_param: _Optional[_Union[CorrelationParameter, _Mapping]] = ..., l1_loss_param: _Optional[_Union[L1LossParameter, _Mapping]] = ..., writer_param: _Optional[_Union[WriterParameter, _Mapping]] = ..., reader_param: _Optional[_Union[ReaderParameter, _Mapping]] = ..., mean_param: _Optional[_Union[MeanParameter, _Mapping]] = ..., resample_param: _Optional[_Union[ResampleParameter, _Mapping]] = ..., downsample_param: _Optional[_Union[DownsampleParameter, _Mapping]] = ..., reshape_every_iter: _Optional[bool] = ..., lpq_loss_param: _Optional[_Union[LpqLossParameter, _Mapping]] = ..., flow_warp_param: _Optional[_Union[FlowWarpParameter, _Mapping]] = ..., accum_param: _Optional[_Union[AccumParameter, _Mapping]] = ..., black_augmentation_param: _Optional[_Union[BlackAugmentationParameter, _Mapping]] = ..., batch_reduction_param: _Optional[_Union[BatchReductionParameter, _Mapping]] = ..., shuffle_channel_param: _Optional[_Union[ShuffleChannelParameter, _Mapping]] = ..., gan_loss_param: _Optional[_Union[GANLossParameter, _Mapping]] = ..., squeeze_convolution_param: _Optional[_Union[SqueezeConvolutionParameter, _Mapping]] = ..., squeeze_inner_product_param: _Optional[_Union[SqueezeInnerProductParameter, _Mapping]] = ..., yolo_v2_loss_param: _Optional[_Union[YoloV2LossParameter, _Mapping]] = ..., yolo_v3_loss_param: _Optional[_Union[YoloV3LossParameter, _Mapping]] = ..., annotated_data_param: _Optional[_Union[AnnotatedDataParameter, _Mapping]] = ..., multibox_loss_param: _Optional[_Union[MultiBoxLossParameter, _Mapping]] = ..., permute_param: _Optional[_Union[PermuteParameter, _Mapping]] = ..., prior_box_param: _Optional[_Union[PriorBoxParameter, _Mapping]] = ..., rnn_param: _Optional[_Union[RNNParameter, _Mapping]] = ..., detection_output_param: _Optional[_Union[DetectionOutputParameter, _Mapping]] = ..., detection_evaluate_param: _Optional[_Union[DetectionEvaluateParameter, _Mapping]] = ..., norm_param: _Optional[_Union[NormalizeParameter, _Mapping]] = ..., video_data_param: _Optional[_Union[VideoDataParameter, _Mapping]] = ..., depth_to_space_param: _Optional[_Union[DepthToSpaceParameter, _Mapping]] = ..., predict_box_param: _Optional[_Union[PredictBoxParameter, _Mapping]] = ..., fcn_data_param: _Optional[_Union[FCNDataParameter, _Mapping]] = ..., gather_param: _Optional[_Union[GatherParameter, _Mapping]] = ..., flip_param: _Optional[_Union[FlipParameter, _Mapping]] = ..., inner_distance_param: _Optional[_Union[InnerDistanceParameter, _Mapping]] = ..., nms_param: _Optional[_Union[NMSParameter, _Mapping]] = ..., general_contrastive_loss_param: _Optional[_Union[GeneralContrastiveParameter, _Mapping]] = ..., gather_nd_param: _Optional[_Union[GatherNDParameter, _Mapping]] = ..., general_triplet_loss_param: _Optional[_Union[GeneralTripletParameter, _Mapping]] = ..., soft_truncation_param: _Optional[_Union[SoftTruncationParameter, _Mapping]] = ..., where4_gathernd_param: _Optional[_Union[Where4GatherndParameter, _Mapping]] = ..., crop_and_resize_param: _Optional[_Union[CropAndResizeParameter, _Mapping]] = ..., pairwise_param: _Optional[_Union[PairwiseParameter, _Mapping]] = ..., pyramid_roi_align_param: _Optional[_Union[PyramidROIAlignParameter, _Mapping]] = ..., batch_contrastive_loss_param: _Optional[_Union[BatchContrastiveParameter, _Mapping]] = ..., pad_param: _Optional[_Union[PadParameter, _Mapping]] = ..., stack_param: _Optional[_Union[StackParameter, _Mapping]] = ..., nca_param: _Optional[_Union[NCAParameter, _Mapping]] = ..., largemargin_inner_product_param: _Optional[_Union[LargeMarginInnerProductParameter, _Mapping]] = ..., label_specific_rescale_param: _Optional[_Union[LabelSpecificRescaleParameter, _Mapping]] = ..., infimum_loss_param: _Optional[_Union[InfimumLossParamter, _Mapping]] = ..., ordinal_regression_loss_param: _Optional[_Union[OrdinalRegressionParameter, _Mapping]] = ..., reduce_mean_param: _Optional[_Union[ReduceMeanParameter, _Mapping]] = ..., selu_param: _Optional[_Union[SeLUParameter, _Mapping]] = ..., feature_decay_loss_param: _Optional[_Union[FeatureDecayLossParameter, _Mapping]] = ..., confidence_penalty_loss_param: _Optional[_Union[ConfidencePenaltyLossParameter, _Mapping]] = ..., batch_to_space_nd_param: _Optional[_Union[BatchToSpaceNDParameter, _Mapping]] = ..., label_specific_margin_param: _Optional[_Union[LabelSpecificMarginParameter, _Mapping]] = ..., channel_scale_param: _Optional[_Union[ChannelScaleParameter, _Mapping]] = ..., label_specific_affine_param: _Optional[_Union[LabelSpecificAffineParameter, _Mapping]] = ..., label_specific_hard_margin_param: _Optional[_Union[LabelSpecificHardMarginParameter, _Mapping]] = ..., expand_dims_nd_param: _Optional[_Union[ExpandDimsNDParameter, _Mapping]] = ..., label_specific_add_param: _Optional[_Union[LabelSpecificAddParameter, _Mapping]] = ..., broadcast_to_param: _Optional[_Union[BroadcastToParameter, _Mapping]] = ..., strided_slice_param: _Optional[_Union[StridedSliceParameter, _Mapping]] = ..., piece_param: _Optional[_Union[PieceParameter, _Mapping]] = ..., range_param: _Optional[_Union[RangeParameter, _Mapping]] = ..., sparse_to_dense_param: _Optional[_Union[SparseToDenseParameter, _Mapping]] = ..., roi_align_param: _Optional[_Union[ROIAlignParameter, _Mapping]] = ..., embedding_lookup_param: _Optional[_Union[EmbeddingLookupParameter, _Mapping]] = ..., embedding_lookup_sparse_param: _Optional[_Union[EmbeddingLookupSparseParameter, _Mapping]] = ..., gemm_param: _Optional[_Union[GemmParameter, _Mapping]] = ..., reduce_l1_param: _Optional[_Union[ReduceL1Parameter, _Mapping]] = ..., reduce_l2_param: _Optional[_Union[ReduceL2Parameter, _Mapping]] = ..., reduce_logsumexp_param: _Optional[_Union[ReduceLogSumExpParameter, _Mapping]] = ..., reduce_all_param: _Optional[_Union[ReduceAllParameter, _Mapping]] = ..., reduce_any_param: _Optional[_Union[ReduceAnyParameter, _Mapping]] = ..., reverse_sequence_param: _Optional[_Union[ReverseSequenceParameter, _Mapping]] = ..., hard_sigmoid_param: _Optional[_Union[HardSigmoidParameter, _Mapping]] = ..., thresholded_relu_param: _Optional[_Union[ThresholdedReLUParameter, _Mapping]] = ..., one_hot_param: _Optional[_Union[OneHotParameter, _Mapping]] = ..., reverse_param: _Optional[_Union[ReverseParameter, _Mapping]] = ..., lp_normalization_param: _Optional[_Union[LpNormalizationParameter, _Mapping]] = ..., matmul_param: _Optional[_Union[MatMulParameter, _Mapping]] = ..., gather_v2_param: _Optional[_Union[GatherV2Parameter, _Mapping]] = ..., scaled_tanh_param: _Optional[_Union[ScaledTanHParameter, _Mapping]] = ..., pooling3d_param: _Optional[_Union[Pooling3DParameter, _Mapping]] = ..., log_softmax_param: _Optional[_Union[LogSoftmaxParameter, _Mapping]] = ..., maskrcnn_detection_param: _Optional[_Union[MaskRCNNDetectionParameter, _Mapping]] = ..., maskrcnn_proposal_param: _Optional[_Union[MaskRCNNProposalParameter, _Mapping]] = ..., attention_param: _Optional[_Union[AttentionParameter, _Mapping]] = ..., non_max_suppression_param: _Optional[_Union[NonMaxSuppressionParameter, _Mapping]] = ..., rnn_v2_param: _Optional[_Union[RNNv2Parameter, _Mapping]] = ..., count_nonzero_param: _Optional[_Union[CountNonzeroParameter, _Mapping]] = ..., not_equal_param: _Optional[_Union[NotEqualParameter, _Mapping]] = ..., point_net_param: _Optional[_Union[PointNetParameter, _Mapping]] = ..., scatter_nd_param: _Optional[_Union[ScatterNDParameter, _Mapping]] = ..., layer_norm_param: _Optional[_Union[LayerNormParameter, _Mapping]] = ..., mul_param: _Optional[_Union[MulParameter, _Mapping]] = ..., spatial_batching_pooling_param: _Optional[_Union[SpatialBatchingPoolingParameter, _Mapping]] = ..., tensor2box_param: _Optional[_Union[Tensor2BoxParameter, _Mapping]] = ..., corr1d_param: _Optional[_Union[Corr1dParameter, _Mapping]] = ..., eval_detection_param: _Optional[_Union[EvalDetectionParameter, _Mapping]] = ..., yolo_detection_output_param: _Optional[_Union[YoloDetectionOutputParameter, _Mapping]] = ..., yolov3_detection_output_param: _Optional[_Union[Yolov3DetectionOutputParameter, _Mapping]] = ..., yolov3_param: _Optional[_Union[Yolov3Parameter, _Mapping]] = ..., yolo_seg_param: _Optional[_Union[YoloSegParameter, _Mapping]] = ..., segmentation_evaluate_param: _Optional[_Union[SegmentationEvaluateParameter, _Mapping]] = ..., convolution3d_param: _Optional[_Union[Convolution3DParameter, _Mapping]] = ..., detectnet_groundtruth_param: _Optional[_Union[DetectNetGroundTruthParameter, _Mapping]] = ..., detectnet_augmentation_param: _Optional[_Union[DetectNetAugmentationParameter, _Mapping]] = ..., adaptive_bias_channel_param: _Optional[_Union[AdaptiveBiasChannelParameter, _Mapping]] = ..., backward_math: _Optional[_Union[Type, str]] = ..., backward_type: _Optional[_Union[Type, str]] = ..., bbox_reg_param: _Optional[_Union[BBoxRegParameter, _Mapping]] = ..., bias_channel_param: _Optional[_Union[BiasChannelParameter, _Mapping]] = ..., box_annotator_ohem_param: _Optional[_Union[BoxAnnotatorOHEMParameter, _Mapping]] = ..., box_group_output_param: _Optional[_Union[BoxGroupOutputParameter, _Mapping]] = ..., box_output_param: _Optional[_Union[BoxOutputParameter, _Mapping]] = ..., center_loss_param: _Optional[_Union[CenterLossParameter, _Mapping]] = ..., coeff_schedule_param: _Optional[_Union[CoeffScheduleParameter, _Mapping]] = ..., cudnn_math_override: _Optional[int] = ..., debug: _Optional[bool] = ..., decode_bbox_param: _Optional[_Union[DecodeBBoxParameter, _Mapping]] = ..., dense_crf_param: _Optional[_Union[DenseCRFParameter, _Mapping]] = ..., dense_image_data_param: _Optional[_Union[DenseImageDataParameter, _Mapping]] = ..., detection_accuracy_param: _Optional[_Union[DetectionAccuracyParameter, _Mapping]] = ..., detection_data_param: _Optional[_Union[DetectionDataParameter, _Mapping]] = ..., detection_group_accuracy_param: _Optional[_Union[DetectionGroupAccuracyParameter, _Mapping]] = ..., detection_group_loss_param: _Optional[_Union[DetectionGroupLossParameter, _Mapping]] = ..., detection_loss_param: _Optional[_Union[DetectionLossParameter, _Mapping]] = ..., domain_transform_param: _Optional[_Union[DomainTransformParameter, _Mapping]] = ..., eltwise_affine_param: _Optional[_Union[EltwiseAffineParameter, _Mapping]] = ..., engine: _Optional[str] = ..., eval_data_param: _Optional[_Union[EvalDataParameter, _Mapping]] = ..., focal_loss_param: _Optional[_Union[FocalLossParameter, _Mapping]] = ..., forward_math: _Optional[_Union[Type, str]] = ..., forward_type: _Optional[_Union[Type, str]] = ..., frcnn_output_param: _Optional[_Union[FrcnnOutputParameter, _Mapping]] = ..., hard_mining_param: _Optional[_Union[HardMiningParameter, _Mapping]] = ..., hotspot_param: _Optional[_Union[HotspotParameter, _Mapping]] = ..., insanity_param: _Optional[_Union[InsanityParameter, _Mapping]] = ..., interp_param: _Optional[_Union[InterpParameter, _Mapping]] = ..., local_param: _Optional[_Union[LocalParameter, _Mapping]] = ..., margin_inner_product_param: _Optional[_Union[MarginInnerProductParameter, _Mapping]] = ..., mask_resize_param: _Optional[_Union[MaskResizeParameter, _Mapping]] = ..., mat_read_param: _Optional[_Union[MatReadParameter, _Mapping]] = ..., mat_write_param: _Optional[_Union[MatWriteParameter, _Mapping]] = ..., mirror_pad_param: _Optional[_Union[MirrorPadParameter, _Mapping]] = ..., mn_activation_param: _Optional[_Union[MnActivationParameter, _Mapping]] = ..., mn_grad_compress_param: _Optional[_Union[MnParamGradCompressParameter, _Mapping]] = ..., multi_stage_meanfield_param: _Optional[_Union[MultiStageMeanfieldParameter, _Mapping]] = ..., multinode: _Optional[_Union[MultinodeLayerParameter, _Mapping]] = ..., nms_gather_param: _Optional[_Union[NMSGatherParameter, _Mapping]] = ..., noise_param: _Optional[_Union[NoiseParameter, _Mapping]] = ..., normalize_param: _Optional[_Union[NormalizeParameter, _Mapping]] = ..., padding_param: _Optional[_Union[PaddingParameter, _Mapping]] = ..., proposal_param: _Optional[_Union[ProposalParameter, _Mapping]] = ..., proposal_target_param: _Optional[_Union[ProposalTargetParameter, _Mapping]] = ..., psroi_pooling_param: _Optional[_Union[PSROIPoolingParameter, _Mapping]] = ..., quantization_param: _Optional[_Union[QuantizationParameter, _Mapping]] = ..., reduce_max_param: _Optional[_Union[ReduceMaxParameter, _Mapping]] = ..., reduce_min_param: _Optional[_Union[ReduceMinParameter, _Mapping]] = ..., reduce_prod_param: _Optional[_Union[ReduceProdParameter, _Mapping]] = ..., reduce_sum_param: _Optional[_Union[ReduceSumParameter, _Mapping]] = ..., region_loss_param: _Optional[_Union[RegionLossParameter, _Mapping]] = ..., relu6_param: _Optional[_Union[ReLUParameter, _Mapping]] = ..., reorg_param: _Optional[_Union[ReorgParameter, _Mapping]] = ..., resize_bilinear_param: _Optional[_Union[ResizeBilinearParameter, _Mapping]] = ..., resize_nearest_neighbor_param: _Optional[_Union[ResizeNearestNeighborParameter, _Mapping]] = ..., resize_param: _Optional[_Union[ResizeParameter, _Mapping]] = ..., roi_pooling_param: _Optional[_Union[ROIPoolingParameter, _Mapping]] = ..., roi_warping_param: _Optional[_Union[ROIWarpingParameter, _Mapping]] = ..., scale_route_param: _Optional[_Union[ScaleRouteParameter, _Mapping]] = ..., seg_accuracy_param: _Optional[_Union[SegAccuracyParameter, _Mapping]] = ..., seg_data_param: _Optional[_Union[SegDataParameter, _Mapping]] = ..., selu_dropout_param: _Optional[_Union[SeLUDropoutParameter, _Mapping]] = ..., smooth_l1_loss_param: _Optional[_Union[SmoothL1LossParameter, _Mapping]] = ..., smoothl1_param: _Optional[_Union[SmoothL1Parameter, _Mapping]] = ..., soft_contrastive_loss_param: _Optional[_Union[SoftContrastiveParameter, _Mapping]] = ..., softmaxloss_param: _Optional[_Union[SoftmaxLossParameter, _Mapping]] = ..., space_to_batch_nd_param: _Optional[_Union[SpaceToBatchNDParameter, _Mapping]] = ..., space_to_depth_param: _Optional[_Union[SpaceToDepthParameter, _Mapping]] = ..., spatial_dropout_param: _Optional[_Union[SpatialDropoutParameter, _Mapping]] = ..., split_param: _Optional[_Union[SplitParameter, _Mapping]] = ..., squeeze_param: _Optional[_Union[SqueezeParameter, _Mapping]] = ..., strict_dim: _Optional[bool] = ..., sub_region_param: _Optional[_Union[SubRegionParameter, _Mapping]] = ..., tile_nd_param: _Optional[_Union[TileNDParameter, _Mapping]] = ..., topk_gather_param: _Optional[_Union[TopkGatherParameter, _Mapping]] = ..., triplet_loss_param: _Optional[_Union[TripletLossParameter, _Mapping]] = ..., trt_param: _Optional[_Union[TRTParameter, _Mapping]] = ..., truncation_param: _Optional[_Union[TruncationParameter, _Mapping]] = ..., unique_label_param: _Optional[_Union[UniqueLabelParameter, _Mapping]] = ..., unpooling_param: _Optional[_Union[UnpoolingParameter, _Mapping]] = ..., unstack_param: _Optional[_Union[UnstackParameter, _Mapping]] = ..., upsample_darknet_param: _Optional[_Union[UpsampleDarknetParameter, _Mapping]] = ..., upsample_param: _Optional[_Union[UpsampleParameter, _Mapping]] = ..., where4_gathernd_crop_param: _Optional[_Union[Where4GatherndCropParameter, _Mapping]] = ..., where4_param: _Optional[_Union[Where4Parameter, _Mapping]] = ..., xlu_param: _Optional[_Union[XLUParameter, _Mapping]] = ..., spatial_softmax_param: _Optional[_Union[SpatialSoftmaxParameter, _Mapping]] = ..., eltwise_accuracy_param: _Optional[_Union[EltwiseAccuracyParameter, _Mapping]] = ..., transpose_param: _Optional[_Union[TransposeParameter, _Mapping]] = ..., continuation_indicator_param: _Optional[_Union[ContinuationIndicatorParameter, _Mapping]] = ..., ctc_loss_param: _Optional[_Union[CtcLossParameter, _Mapping]] = ..., labelsequence_accuracy_param: _Optional[_Union[LabelsequenceAccuracyParameter, _Mapping]] = ..., lstm_param: _Optional[_Union[LSTMParameter, _Mapping]] = ..., ctc_decoder_param: _Optional[_Union[CTCDecoderParameter, _Mapping]] = ..., lstm_simple_param: _Optional[_Union[LSTMParameter, _Mapping]] = ..., cosin_add_m_param: _Optional[_Union[CosinAddmParameter, _Mapping]] = ..., gradient_scaler_param: _Optional[_Union[GradientScalerParameter, _Mapping]] = ..., cpm_transform_param: _Optional[_Union[CPMTransformationParameter, _Mapping]] = ..., image_gt_data_param: _Optional[_Union[ImageGtDataParameter, _Mapping]] = ..., denseblock_param: _Optional[_Union[DenseBlockParameter, _Mapping]] = ..., cpmdata_param: _Optional[_Union[CPMDataParameter, _Mapping]] = ..., mil_data_param: _Optional[_Union[MILDataParameter, _Mapping]] = ..., mil_param: _Optional[_Union[MILParameter, _Mapping]] = ..., group_start: _Optional[bool] = ..., freeze_learning: _Optional[bool] = ..., connect_loss_event: _Optional[bool] = ..., use_halfsize: _Optional[bool] = ..., debug_param: _Optional[_Union[DebugParameter, _Mapping]] = ..., data_sequence_param: _Optional[_Union[DataSequenceParameter, _Mapping]] = ..., decode_param: _Optional[_Union[DecodeParameter, _Mapping]] = ..., knn_param: _Optional[_Union[KnnParameter, _Mapping]] = ..., max_bottom_count: _Optional[_Union[MaxBottomCount, _Mapping]] = ..., filter_param: _Optional[_Union[FilterParameter, _Mapping]] = ..., normalization2_param: _Optional[_Union[NormalizeParameter, _Mapping]] = ..., multiboxloss_param: _Optional[_Union[MultiBoxLossParameter, _Mapping]] = ...) -> None: ...

class TransformationParameter(_message.Message):
    __slots__ = ("scale", "mirror", "crop_size", "mean_file", "mean_value", "force_color", "force_gray", "resize_param", "noise_param", "emit_constraint", "crop_h", "crop_w", "distort_param", "expand_param", "aspect_max", "horizontal_stretch_lower", "flow", "bgr2rgb", "contrast_brightness_adjustment", "allow_upscale", "caffe_yolo", "display", "max_brightness_shift", "max_smooth", "max_color_shift", "min_side_min", "min_side_max", "min_side", "apply_probability", "debug_params", "cvt_bgr2rgb", "aspect_min", "center_crop", "crop_height", "crop_width", "enable_classf_aug", "erase_ratio", "fix_crop", "forward_packing", "horizontal_stretch_upper", "img_rand_resize_lower", "img_rand_resize_upper", "interpolation_algo_down", "interpolation_algo_up", "is_flow", "max_contrast", "max_distort", "max_rotation_angle", "max_scaling_factor", "min_contrast", "min_scaling_factor", "more_fix_crop", "multi_scale", "num_labels", "original_image", "pad", "rand_resize_ratio_lower", "rand_resize_ratio_upper", "random_aspect_ratio_param", "random_resize_param", "random_seed", "scale_factors", "scale_max", "scale_min", "scale_ratios", "smooth_filtering", "stride", "upper_height", "upper_size", "upper_width", "use_gpu_transform", "vertical_stretch_lower", "vertical_stretch_upper", "scale_operator", "use_image_mean", "use_imagedb_mean", "color_order", "distortion_param", "expansion_param", "mask_param", "label_mapping", "scale_cvg", "max_cvg_len", "min_cvg_len", "opaque_coverage", "coverage", "flip_prob", "max_rotate_degree", "visualize", "crop_size_x", "crop_size_y", "scale_prob", "bbox_norm_factor", "img_header", "target_dist", "center_perterb_max", "sigma", "sigma_center", "clahe_tile_size", "clahe_clip_limit", "do_clahe", "num_parts", "num_total_augs", "aug_way", "gray", "np_in_lmdb", "transform_body_joint", "put_gaussian", "visualize_label")
    class InterpolationAlgo(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        INTER_NEAREST: _ClassVar[TransformationParameter.InterpolationAlgo]
        INTER_LINEAR: _ClassVar[TransformationParameter.InterpolationAlgo]
        INTER_CUBIC: _ClassVar[TransformationParameter.InterpolationAlgo]
        INTER_AREA: _ClassVar[TransformationParameter.InterpolationAlgo]
    INTER_NEAREST: TransformationParameter.InterpolationAlgo
    INTER_LINEAR: TransformationParameter.InterpolationAlgo
    INTER_CUBIC: TransformationParameter.InterpolationAlgo
    INTER_AREA: TransformationParameter.InterpolationAlgo
    SCALE_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    CROP_SIZE_FIELD_NUMBER: _ClassVar[int]
    MEAN_FILE_FIELD_NUMBER: _ClassVar[int]
    MEAN_VALUE_FIELD_NUMBER: _ClassVar[int]
    FORCE_COLOR_FIELD_NUMBER: _ClassVar[int]
    FORCE_GRAY_FIELD_NUMBER: _ClassVar[int]
    RESIZE_PARAM_FIELD_NUMBER: _ClassVar[int]
    NOISE_PARAM_FIELD_NUMBER: _ClassVar[int]
    EMIT_CONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    CROP_H_FIELD_NUMBER: _ClassVar[int]
    CROP_W_FIELD_NUMBER: _ClassVar[int]
    DISTORT_PARAM_FIELD_NUMBER: _ClassVar[int]
    EXPAND_PARAM_FIELD_NUMBER: _ClassVar[int]
    ASPECT_MAX_FIELD_NUMBER: _ClassVar[int]
    HORIZONTAL_STRETCH_LOWER_FIELD_NUMBER: _ClassVar[int]
    FLOW_FIELD_NUMBER: _ClassVar[int]
    BGR2RGB_FIELD_NUMBER: _ClassVar[int]
    CONTRAST_BRIGHTNESS_ADJUSTMENT_FIELD_NUMBER: _ClassVar[int]
    ALLOW_UPSCALE_FIELD_NUMBER: _ClassVar[int]
    CAFFE_YOLO_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_FIELD_NUMBER: _ClassVar[int]
    MAX_BRIGHTNESS_SHIFT_FIELD_NUMBER: _ClassVar[int]
    MAX_SMOOTH_FIELD_NUMBER: _ClassVar[int]
    MAX_COLOR_SHIFT_FIELD_NUMBER: _ClassVar[int]
    MIN_SIDE_MIN_FIELD_NUMBER: _ClassVar[int]
    MIN_SIDE_MAX_FIELD_NUMBER: _ClassVar[int]
    MIN_SIDE_FIELD_NUMBER: _ClassVar[int]
    APPLY_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    DEBUG_PARAMS_FIELD_NUMBER: _ClassVar[int]
    CVT_BGR2RGB_FIELD_NUMBER: _ClassVar[int]
    ASPECT_MIN_FIELD_NUMBER: _ClassVar[int]
    CENTER_CROP_FIELD_NUMBER: _ClassVar[int]
    CROP_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    CROP_WIDTH_FIELD_NUMBER: _ClassVar[int]
    ENABLE_CLASSF_AUG_FIELD_NUMBER: _ClassVar[int]
    ERASE_RATIO_FIELD_NUMBER: _ClassVar[int]
    FIX_CROP_FIELD_NUMBER: _ClassVar[int]
    FORWARD_PACKING_FIELD_NUMBER: _ClassVar[int]
    HORIZONTAL_STRETCH_UPPER_FIELD_NUMBER: _ClassVar[int]
    IMG_RAND_RESIZE_LOWER_FIELD_NUMBER: _ClassVar[int]
    IMG_RAND_RESIZE_UPPER_FIELD_NUMBER: _ClassVar[int]
    INTERPOLATION_ALGO_DOWN_FIELD_NUMBER: _ClassVar[int]
    INTERPOLATION_ALGO_UP_FIELD_NUMBER: _ClassVar[int]
    IS_FLOW_FIELD_NUMBER: _ClassVar[int]
    MAX_CONTRAST_FIELD_NUMBER: _ClassVar[int]
    MAX_DISTORT_FIELD_NUMBER: _ClassVar[int]
    MAX_ROTATION_ANGLE_FIELD_NUMBER: _ClassVar[int]
    MAX_SCALING_FACTOR_FIELD_NUMBER: _ClassVar[int]
    MIN_CONTRAST_FIELD_NUMBER: _ClassVar[int]
    MIN_SCALING_FACTOR_FIELD_NUMBER: _ClassVar[int]
    MORE_FIX_CROP_FIELD_NUMBER: _ClassVar[int]
    MULTI_SCALE_FIELD_NUMBER: _ClassVar[int]
    NUM_LABELS_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_IMAGE_FIELD_NUMBER: _ClassVar[int]
    PAD_FIELD_NUMBER: _ClassVar[int]
    RAND_RESIZE_RATIO_LOWER_FIELD_NUMBER: _ClassVar[int]
    RAND_RESIZE_RATIO_UPPER_FIELD_NUMBER: _ClassVar[int]
    RANDOM_ASPECT_RATIO_PARAM_FIELD_NUMBER: _ClassVar[int]
    RANDOM_RESIZE_PARAM_FIELD_NUMBER: _ClassVar[int]
    RANDOM_SEED_FIELD_NUMBER: _ClassVar[int]
    SCALE_FACTORS_FIELD_NUMBER: _ClassVar[int]
    SCALE_MAX_FIELD_NUMBER: _ClassVar[int]
    SCALE_MIN_FIELD_NUMBER: _ClassVar[int]
    SCALE_RATIOS_FIELD_NUMBER: _ClassVar[int]
    SMOOTH_FILTERING_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    UPPER_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    UPPER_SIZE_FIELD_NUMBER: _ClassVar[int]
    UPPER_WIDTH_FIELD_NUMBER: _ClassVar[int]
    USE_GPU_TRANSFORM_FIELD_NUMBER: _ClassVar[int]
    VERTICAL_STRETCH_LOWER_FIELD_NUMBER: _ClassVar[int]
    VERTICAL_STRETCH_UPPER_FIELD_NUMBER: _ClassVar[int]
    SCALE_OPERATOR_FIELD_NUMBER: _ClassVar[int]
    USE_IMAGE_MEAN_FIELD_NUMBER: _ClassVar[int]
    USE_IMAGEDB_MEAN_FIELD_NUMBER: _ClassVar[int]
    COLOR_ORDER_FIELD_NUMBER: _ClassVar[int]
    DISTORTION_PARAM_FIELD_NUMBER: _ClassVar[int]
    EXPANSION_PARAM_FIELD_NUMBER: _ClassVar[int]
    MASK_PARAM_FIELD_NUMBER: _ClassVar[int]
    LABEL_MAPPING_FIELD_NUMBER: _ClassVar[int]
    SCALE_CVG_FIELD_NUMBER: _ClassVar[int]
    MAX_CVG_LEN_FIELD_NUMBER: _ClassVar[int]
    MIN_CVG_LEN_FIELD_NUMBER: _ClassVar[int]
    OPAQUE_COVERAGE_FIELD_NUMBER: _ClassVar[int]
    COVERAGE_FIELD_NUMBER: _ClassVar[int]
    FLIP_PROB_FIELD_NUMBER: _ClassVar[int]
    MAX_ROTATE_DEGREE_FIELD_NUMBER: _ClassVar[int]
    VISUALIZE_FIELD_NUMBER: _ClassVar[int]
    CROP_SIZE_X_FIELD_NUMBER: _ClassVar[int]
    CROP_SIZE_Y_FIELD_NUMBER: _ClassVar[int]
    SCALE_PROB_FIELD_NUMBER: _ClassVar[int]
    BBOX_NORM_FACTOR_FIELD_NUMBER: _ClassVar[int]
    IMG_HEADER_FIELD_NUMBER: _ClassVar[int]
    TARGET_DIST_FIELD_NUMBER: _ClassVar[int]
    CENTER_PERTERB_MAX_FIELD_NUMBER: _ClassVar[int]
    SIGMA_FIELD_NUMBER: _ClassVar[int]
    SIGMA_CENTER_FIELD_NUMBER: _ClassVar[int]
    CLAHE_TILE_SIZE_FIELD_NUMBER: _ClassVar[int]
    CLAHE_CLIP_LIMIT_FIELD_NUMBER: _ClassVar[int]
    DO_CLAHE_FIELD_NUMBER: _ClassVar[int]
    NUM_PARTS_FIELD_NUMBER: _ClassVar[int]
    NUM_TOTAL_AUGS_FIELD_NUMBER: _ClassVar[int]
    AUG_WAY_FIELD_NUMBER: _ClassVar[int]
    GRAY_FIELD_NUMBER: _ClassVar[int]
    NP_IN_LMDB_FIELD_NUMBER: _ClassVar[int]
    TRANSFORM_BODY_JOINT_FIELD_NUMBER: _ClassVar[int]
    PUT_GAUSSIAN_FIELD_NUMBER: _ClassVar[int]
    VISUALIZE_LABEL_FIELD_NUMBER: _ClassVar[int]
    scale: float
    mirror: bool
    crop_size: int
    mean_file: str
    mean_value: _containers.RepeatedScalarFieldContainer[float]
    force_color: bool
    force_gray: bool
    resize_param: _containers.RepeatedCompositeFieldContainer[ResizeParameter]
    noise_param: NoiseParameter
    emit_constraint: EmitConstraint
    crop_h: int
    crop_w: int
    distort_param: DistortionParameter
    expand_param: ExpansionParameter
    aspect_max: float
    horizontal_stretch_lower: float
    flow: bool
    bgr2rgb: bool
    contrast_brightness_adjustment: bool
    allow_upscale: bool
    caffe_yolo: bool
    display: bool
    max_brightness_shift: int
    max_smooth: float
    max_color_shift: int
    min_side_min: int
    min_side_max: int
    min_side: int
    apply_probability: float
    debug_params: bool
    cvt_bgr2rgb: bool
    aspect_min: float
    center_crop: bool
    crop_height: int
    crop_width: int
    enable_classf_aug: bool
    erase_ratio: float
    fix_crop: bool
    forward_packing: Packing
    horizontal_stretch_upper: float
    img_rand_resize_lower: int
    img_rand_resize_upper: int
    interpolation_algo_down: TransformationParameter.InterpolationAlgo
    interpolation_algo_up: TransformationParameter.InterpolationAlgo
    is_flow: bool
    max_contrast: float
    max_distort: int
    max_rotation_angle: int
    max_scaling_factor: float
    min_contrast: float
    min_scaling_factor: float
    more_fix_crop: bool
    multi_scale: bool
    num_labels: int
    original_image: bool
    pad: int
    rand_resize_ratio_lower: float
    rand_resize_ratio_upper: float
    random_aspect_ratio_param: RandomAspectRatioParameter
    random_resize_param: RandomResizeParameter
    random_seed: int
    scale_factors: _containers.RepeatedScalarFieldContainer[float]
    scale_max: float
    scale_min: float
    scale_ratios: _containers.RepeatedScalarFieldContainer[float]
    smooth_filtering: bool
    stride: int
    upper_height: int
    upper_size: int
    upper_width: int
    use_gpu_transform: bool
    vertical_stretch_lower: float
    vertical_stretch_upper: float
    scale_operator: str
    use_image_mean: bool
    use_imagedb_mean: bool
    color_order: str
    distortion_param: DistortionParameter
    expansion_param: ExpansionParameter
    mask_param: MaskParameter
    label_mapping: LabelMappingParameter
    scale_cvg: float
    max_cvg_len: int
    min_cvg_len: int
    opaque_coverage: bool
    coverage: str
    flip_prob: float
    max_rotate_degree: float
    visualize: bool
    crop_size_x: int
    crop_size_y: int
    scale_prob: float
    bbox_norm_factor: float
    img_header: str
    target_dist: float
    center_perterb_max: float
    sigma: float
    sigma_center: float
    clahe_tile_size: float
    clahe_clip_limit: float
    do_clahe: bool
    num_parts: int
    num_total_augs: int
    aug_way: str
    gray: int
    np_in_lmdb: int
    transform_body_joint: bool
    put_gaussian: bool
    visualize_label: bool
    def __init__(self, scale: _Optional[float] = ..., mirror: _Optional[bool] = ..., crop_size: _Optional[int] = ..., mean_file: _Optional[str] = ..., mean_value: _Optional[_Iterable[float]] = ..., force_color: _Optional[bool] = ..., force_gray: _Optional[bool] = ..., resize_param: _Optional[_Iterable[_Union[ResizeParameter, _Mapping]]] = ..., noise_param: _Optional[_Union[NoiseParameter, _Mapping]] = ..., emit_constraint: _Optional[_Union[EmitConstraint, _Mapping]] = ..., crop_h: _Optional[int] = ..., crop_w: _Optional[int] = ..., distort_param: _Optional[_Union[DistortionParameter, _Mapping]] = ..., expand_param: _Optional[_Union[ExpansionParameter, _Mapping]] = ..., aspect_max: _Optional[float] = ..., horizontal_stretch_lower: _Optional[float] = ..., flow: _Optional[bool] = ..., bgr2rgb: _Optional[bool] = ..., contrast_brightness_adjustment: _Optional[bool] = ..., allow_upscale: _Optional[bool] = ..., caffe_yolo: _Optional[bool] = ..., display: _Optional[bool] = ..., max_brightness_shift: _Optional[int] = ..., max_smooth: _Optional[float] = ..., max_color_shift: _Optional[int] = ..., min_side_min: _Optional[int] = ..., min_side_max: _Optional[int] = ..., min_side: _Optional[int] = ..., apply_probability: _Optional[float] = ..., debug_params: _Optional[bool] = ..., cvt_bgr2rgb: _Optional[bool] = ..., aspect_min: _Optional[float] = ..., center_crop: _Optional[bool] = ..., crop_height: _Optional[int] = ..., crop_width: _Optional[int] = ..., enable_classf_aug: _Optional[bool] = ..., erase_ratio: _Optional[float] = ..., fix_crop: _Optional[bool] = ..., forward_packing: _Optional[_Union[Packing, str]] = ..., horizontal_stretch_upper: _Optional[float] = ..., img_rand_resize_lower: _Optional[int] = ..., img_rand_resize_upper: _Optional[int] = ..., interpolation_algo_down: _Optional[_Union[TransformationParameter.InterpolationAlgo, str]] = ..., interpolation_algo_up: _Optional[_Union[TransformationParameter.InterpolationAlgo, str]] = ..., is_flow: _Optional[bool] = ..., max_contrast: _Optional[float] = ..., max_distort: _Optional[int] = ..., max_rotation_angle: _Optional[int] = ..., max_scaling_factor: _Optional[float] = ..., min_contrast: _Optional[float] = ..., min_scaling_factor: _Optional[float] = ..., more_fix_crop: _Optional[bool] = ..., multi_scale: _Optional[bool] = ..., num_labels: _Optional[int] = ..., original_image: _Optional[bool] = ..., pad: _Optional[int] = ..., rand_resize_ratio_lower: _Optional[float] = ..., rand_resize_ratio_upper: _Optional[float] = ..., random_aspect_ratio_param: _Optional[_Union[RandomAspectRatioParameter, _Mapping]] = ..., random_resize_param: _Optional[_Union[RandomResizeParameter, _Mapping]] = ..., random_seed: _Optional[int] = ..., scale_factors: _Optional[_Iterable[float]] = ..., scale_max: _Optional[float] = ..., scale_min: _Optional[float] = ..., scale_ratios: _Optional[_Iterable[float]] = ..., smooth_filtering: _Optional[bool] = ..., stride: _Optional[int] = ..., upper_height: _Optional[int] = ..., upper_size: _Optional[int] = ..., upper_width: _Optional[int] = ..., use_gpu_transform: _Optional[bool] = ..., vertical_stretch_lower: _Optional[float] = ..., vertical_stretch_upper: _Optional[float] = ..., scale_operator: _Optional[str] = ..., use_image_mean: _Optional[bool] = ..., use_imagedb_mean: _Optional[bool] = ..., color_order: _Optional[str] = ..., distortion_param: _Optional[_Union[DistortionParameter, _Mapping]] = ..., expansion_param: _Optional[_Union[ExpansionParameter, _Mapping]] = ..., mask_param: _Optional[_Union[MaskParameter, _Mapping]] = ..., label_mapping: _Optional[_Union[LabelMappingParameter, _Mapping]] = ..., scale_cvg: _Optional[float] = ..., max_cvg_len: _Optional[int] = ..., min_cvg_len: _Optional[int] = ..., opaque_coverage: _Optional[bool] = ..., coverage: _Optional[str] = ..., flip_prob: _Optional[float] = ..., max_rotate_degree: _Optional[float] = ..., visualize: _Optional[bool] = ..., crop_size_x: _Optional[int] = ..., crop_size_y: _Optional[int] = ..., scale_prob: _Optional[float] = ..., bbox_norm_factor: _Optional[float] = ..., img_header: _Optional[str] = ..., target_dist: _Optional[float] = ..., center_perterb_max: _Optional[float] = ..., sigma: _Optional[float] = ..., sigma_center: _Optional[float] = ..., clahe_tile_size: _Optional[float] = ..., clahe_clip_limit: _Optional[float] = ..., do_clahe: _Optional[bool] = ..., num_parts: _Optional[int] = ..., num_total_augs: _Optional[int] = ..., aug_way: _Optional[str] = ..., gray: _Optional[int] = ..., np_in_lmdb: _Optional[int] = ..., transform_body_joint: _Optional[bool] = ..., put_gaussian: _Optional[bool] = ..., visualize_label: _Optional[bool] = ...) -> None: ...

class LossParameter(_message.Message):
    __slots__ = ("ignore_label", "normalization", "normalize", "class_weighting", "label_smoothing", "pre_fixed_normalizer", "weight_by_label_freqs", "loss_scale")
    class NormalizationMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        FULL: _ClassVar[LossParameter.NormalizationMode]
        VALID: _ClassVar[LossParameter.NormalizationMode]
        BATCH_SIZE: _ClassVar[LossParameter.NormalizationMode]
        NONE: _ClassVar[LossParameter.NormalizationMode]
        PRE_FIXED: _ClassVar[LossParameter.NormalizationMode]
    FULL: LossParameter.NormalizationMode
    VALID: LossParameter.NormalizationMode
    BATCH_SIZE: LossParameter.NormalizationMode
    NONE: LossParameter.NormalizationMode
    PRE_FIXED: LossParameter.NormalizationMode
    IGNORE_LABEL_FIELD_NUMBER: _ClassVar[int]
    NORMALIZATION_FIELD_NUMBER: _ClassVar[int]
    NORMALIZE_FIELD_NUMBER: _ClassVar[int]
    CLASS_WEIGHTING_FIELD_NUMBER: _ClassVar[int]
    LABEL_SMOOTHING_FIELD_NUMBER: _ClassVar[int]
    PRE_FIXED_NORMALIZER_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_BY_LABEL_FREQS_FIELD_NUMBER: _ClassVar[int]
    LOSS_SCALE_FIELD_NUMBER: _ClassVar[int]
    ignore_label: int
    normalization: LossParameter.NormalizationMode
    normalize: bool
    class_weighting: _containers.RepeatedScalarFieldContainer[float]
    label_smoothing: float
    pre_fixed_normalizer: float
    weight_by_label_freqs: bool
    loss_scale: float
    def __init__(self, ignore_label: _Optional[int] = ..., normalization: _Optional[_Union[LossParameter.NormalizationMode, str]] = ..., normalize: _Optional[bool] = ..., class_weighting: _Optional[_Iterable[float]] = ..., label_smoothing: _Optional[float] = ..., pre_fixed_normalizer: _Optional[float] = ..., weight_by_label_freqs: _Optional[bool] = ..., loss_scale: _Optional[float] = ...) -> None: ...

class AccuracyParameter(_message.Message):
    __slots__ = ("top_k", "axis", "ignore_label", "min_is_better", "enable_simple_accuracy", "enable_last_element_only", "ignore_labels")
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    IGNORE_LABEL_FIELD_NUMBER: _ClassVar[int]
    MIN_IS_BETTER_FIELD_NUMBER: _ClassVar[int]
    ENABLE_SIMPLE_ACCURACY_FIELD_NUMBER: _ClassVar[int]
    ENABLE_LAST_ELEMENT_ONLY_FIELD_NUMBER: _ClassVar[int]
    IGNORE_LABELS_FIELD_NUMBER: _ClassVar[int]
    top_k: int
    axis: int
    ignore_label: int
    min_is_better: bool
    enable_simple_accuracy: bool
    enable_last_element_only: bool
    ignore_labels: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, top_k: _Optional[int] = ..., axis: _Optional[int] = ..., ignore_label: _Optional[int] = ..., min_is_better: _Optional[bool] = ..., enable_simple_accuracy: _Optional[bool] = ..., enable_last_element_only: _Optional[bool] = ..., ignore_labels: _Optional[_Iterable[int]] = ...) -> None: ...

class ArgMaxParameter(_message.Message):
    __slots__ = ("out_max_val", "top_k", "axis", "min_first")
    OUT_MAX_VAL_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    MIN_FIRST_FIELD_NUMBER: _ClassVar[int]
    out_max_val: bool
    top_k: int
    axis: int
    min_first: bool
    def __init__(self, out_max_val: _Optional[bool] = ..., top_k: _Optional[int] = ..., axis: _Optional[int] = ..., min_first: _Optional[bool] = ...) -> None: ...

class ClipParameter(_message.Message):
    __slots__ = ("min", "max")
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    min: float
    max: float
    def __init__(self, min: _Optional[float] = ..., max: _Optional[float] = ...) -> None: ...

class ConcatParameter(_message.Message):
    __slots__ = ("axis", "concat_dim", "engine", "output_scale", "input_zero_point", "output_zero_point", "saturate", "quantize_method", "input_scale", "per_fla_fuse")
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[ConcatParameter.Engine]
        CAFFE: _ClassVar[ConcatParameter.Engine]
        MKL2017: _ClassVar[ConcatParameter.Engine]
        MKLDNN: _ClassVar[ConcatParameter.Engine]
    DEFAULT: ConcatParameter.Engine
    CAFFE: ConcatParameter.Engine
    MKL2017: ConcatParameter.Engine
    MKLDNN: ConcatParameter.Engine
    class QuantizeMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        tflite: _ClassVar[ConcatParameter.QuantizeMethod]
        ONNX: _ClassVar[ConcatParameter.QuantizeMethod]
        Caffe2: _ClassVar[ConcatParameter.QuantizeMethod]
    tflite: ConcatParameter.QuantizeMethod
    ONNX: ConcatParameter.QuantizeMethod
    Caffe2: ConcatParameter.QuantizeMethod
    class SaturateMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        Signed: _ClassVar[ConcatParameter.SaturateMethod]
        Unsigned: _ClassVar[ConcatParameter.SaturateMethod]
        Signed_8bit: _ClassVar[ConcatParameter.SaturateMethod]
        Unsigned_8bit: _ClassVar[ConcatParameter.SaturateMethod]
    Signed: ConcatParameter.SaturateMethod
    Unsigned: ConcatParameter.SaturateMethod
    Signed_8bit: ConcatParameter.SaturateMethod
    Unsigned_8bit: ConcatParameter.SaturateMethod
    AXIS_FIELD_NUMBER: _ClassVar[int]
    CONCAT_DIM_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCALE_FIELD_NUMBER: _ClassVar[int]
    INPUT_ZERO_POINT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_ZERO_POINT_FIELD_NUMBER: _ClassVar[int]
    SATURATE_FIELD_NUMBER: _ClassVar[int]
    QUANTIZE_METHOD_FIELD_NUMBER: _ClassVar[int]
    INPUT_SCALE_FIELD_NUMBER: _ClassVar[int]
    PER_FLA_FUSE_FIELD_NUMBER: _ClassVar[int]
    axis: int
    concat_dim: int
    engine: ConcatParameter.Engine
    output_scale: float
    input_zero_point: _containers.RepeatedScalarFieldContainer[int]
    output_zero_point: int
    saturate: ConcatParameter.SaturateMethod
    quantize_method: ConcatParameter.QuantizeMethod
    input_scale: _containers.RepeatedScalarFieldContainer[float]
    per_fla_fuse: bool
    def __init__(self, axis: _Optional[int] = ..., concat_dim: _Optional[int] = ..., engine: _Optional[_Union[ConcatParameter.Engine, str]] = ..., output_scale: _Optional[float] = ..., input_zero_point: _Optional[_Iterable[int]] = ..., output_zero_point: _Optional[int] = ..., saturate: _Optional[_Union[ConcatParameter.SaturateMethod, str]] = ..., quantize_method: _Optional[_Union[ConcatParameter.QuantizeMethod, str]] = ..., input_scale: _Optional[_Iterable[float]] = ..., per_fla_fuse: _Optional[bool] = ...) -> None: ...

class BatchNormParameter(_message.Message):
    __slots__ = ("use_global_stats", "moving_average_fraction", "eps", "add_eps_before_sqrt", "disable_variance", "bias_term", "filler", "bias_filler", "stats_batch_size", "relu", "engine", "disable_mean", "icnet", "scale_bias", "scale_filler", "update_global_stats", "use_weight_bias")
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[BatchNormParameter.Engine]
        CAFFE: _ClassVar[BatchNormParameter.Engine]
        CUDNN: _ClassVar[BatchNormParameter.Engine]
        MKL2017: _ClassVar[BatchNormParameter.Engine]
        MKLDNN: _ClassVar[BatchNormParameter.Engine]
    DEFAULT: BatchNormParameter.Engine
    CAFFE: BatchNormParameter.Engine
    CUDNN: BatchNormParameter.Engine
    MKL2017: BatchNormParameter.Engine
    MKLDNN: BatchNormParameter.Engine
    USE_GLOBAL_STATS_FIELD_NUMBER: _ClassVar[int]
    MOVING_AVERAGE_FRACTION_FIELD_NUMBER: _ClassVar[int]
    EPS_FIELD_NUMBER: _ClassVar[int]
    ADD_EPS_BEFORE_SQRT_FIELD_NUMBER: _ClassVar[int]
    DISABLE_VARIANCE_FIELD_NUMBER: _ClassVar[int]
    BIAS_TERM_FIELD_NUMBER: _ClassVar[int]
    FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    STATS_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    RELU_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    DISABLE_MEAN_FIELD_NUMBER: _ClassVar[int]
    ICNET_FIELD_NUMBER: _ClassVar[int]
    SCALE_BIAS_FIELD_NUMBER: _ClassVar[int]
    SCALE_FILLER_FIELD_NUMBER: _ClassVar[int]
    UPDATE_GLOBAL_STATS_FIELD_NUMBER: _ClassVar[int]
    USE_WEIGHT_BIAS_FIELD_NUMBER: _ClassVar[int]
    use_global_stats: bool
    moving_average_fraction: float
    eps: float
    add_eps_before_sqrt: bool
    disable_variance: bool
    bias_term: bool
    filler: FillerParameter
    bias_filler: FillerParameter
    stats_batch_size: int
    relu: bool
    engine: BatchNormParameter.Engine
    disable_mean: bool
    icnet: bool
    scale_bias: bool
    scale_filler: FillerParameter
    update_global_stats: bool
    use_weight_bias: bool
    def __init__(self, use_global_stats: _Optional[bool] = ..., moving_average_fraction: _Optional[float] = ..., eps: _Optional[float] = ..., add_eps_before_sqrt: _Optional[bool] = ..., disable_variance: _Optional[bool] = ..., bias_term: _Optional[bool] = ..., filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., stats_batch_size: _Optional[int] = ..., relu: _Optional[bool] = ..., engine: _Optional[_Union[BatchNormParameter.Engine, str]] = ..., disable_mean: _Optional[bool] = ..., icnet: _Optional[bool] = ..., scale_bias: _Optional[bool] = ..., scale_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., update_global_stats: _Optional[bool] = ..., use_weight_bias: _Optional[bool] = ...) -> None: ...

class BiasParameter(_message.Message):
    __slots__ = ("axis", "num_axes", "filler", "input_scale", "output_scale", "bias_scale", "input_zero_point", "output_zero_point", "bias_zero_point", "saturate", "quantize_method")
    class QuantizeMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        tflite: _ClassVar[BiasParameter.QuantizeMethod]
        ONNX: _ClassVar[BiasParameter.QuantizeMethod]
        Caffe2: _ClassVar[BiasParameter.QuantizeMethod]
    tflite: BiasParameter.QuantizeMethod
    ONNX: BiasParameter.QuantizeMethod
    Caffe2: BiasParameter.QuantizeMethod
    class SaturateMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        Signed: _ClassVar[BiasParameter.SaturateMethod]
        Unsigned: _ClassVar[BiasParameter.SaturateMethod]
        Signed_8bit: _ClassVar[BiasParameter.SaturateMethod]
        Unsigned_8bit: _ClassVar[BiasParameter.SaturateMethod]
    Signed: BiasParameter.SaturateMethod
    Unsigned: BiasParameter.SaturateMethod
    Signed_8bit: BiasParameter.SaturateMethod
    Unsigned_8bit: BiasParameter.SaturateMethod
    AXIS_FIELD_NUMBER: _ClassVar[int]
    NUM_AXES_FIELD_NUMBER: _ClassVar[int]
    FILLER_FIELD_NUMBER: _ClassVar[int]
    INPUT_SCALE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCALE_FIELD_NUMBER: _ClassVar[int]
    BIAS_SCALE_FIELD_NUMBER: _ClassVar[int]
    INPUT_ZERO_POINT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_ZERO_POINT_FIELD_NUMBER: _ClassVar[int]
    BIAS_ZERO_POINT_FIELD_NUMBER: _ClassVar[int]
    SATURATE_FIELD_NUMBER: _ClassVar[int]
    QUANTIZE_METHOD_FIELD_NUMBER: _ClassVar[int]
    axis: int
    num_axes: int
    filler: FillerParameter
    input_scale: float
    output_scale: float
    bias_scale: float
    input_zero_point: int
    output_zero_point: int
    bias_zero_point: int
    saturate: BiasParameter.SaturateMethod
    quantize_method: BiasParameter.QuantizeMethod
    def __init__(self, axis: _Optional[int] = ..., num_axes: _Optional[int] = ..., filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., input_scale: _Optional[float] = ..., output_scale: _Optional[float] = ..., bias_scale: _Optional[float] = ..., input_zero_point: _Optional[int] = ..., output_zero_point: _Optional[int] = ..., bias_zero_point: _Optional[int] = ..., saturate: _Optional[_Union[BiasParameter.SaturateMethod, str]] = ..., quantize_method: _Optional[_Union[BiasParameter.QuantizeMethod, str]] = ...) -> None: ...

class ContrastiveLossParameter(_message.Message):
    __slots__ = ("margin", "legacy_version", "output_matches", "centroid_learning", "distance_calculation", "matching_distance_scale")
    MARGIN_FIELD_NUMBER: _ClassVar[int]
    LEGACY_VERSION_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_MATCHES_FIELD_NUMBER: _ClassVar[int]
    CENTROID_LEARNING_FIELD_NUMBER: _ClassVar[int]
    DISTANCE_CALCULATION_FIELD_NUMBER: _ClassVar[int]
    MATCHING_DISTANCE_SCALE_FIELD_NUMBER: _ClassVar[int]
    margin: float
    legacy_version: bool
    output_matches: bool
    centroid_learning: str
    distance_calculation: str
    matching_distance_scale: float
    def __init__(self, margin: _Optional[float] = ..., legacy_version: _Optional[bool] = ..., output_matches: _Optional[bool] = ..., centroid_learning: _Optional[str] = ..., distance_calculation: _Optional[str] = ..., matching_distance_scale: _Optional[float] = ...) -> None: ...

class ConvolutionParameter(_message.Message):
    __slots__ = ("num_output", "bias_term", "pad", "kernel_size", "stride", "dilation", "pad_h", "pad_w", "kernel_h", "kernel_w", "stride_h", "stride_w", "group", "weight_filler", "bias_filler", "engine", "axis", "force_nd_im2col", "cudnn_convolution_algo_seeker", "conv_algos_override", "conv_algorithm", "coeff", "fusion_type", "pad_l", "pad_r", "pad_t", "pad_b", "input_scale", "output_scale", "saturate", "weight_scale", "input_zero_point", "output_zero_point", "weight_zero_point", "per_channel_scale_weight", "quantize_method", "per_channel_scale_output", "submanifold_sparse", "dilation_h", "dilation_w", "dis_mode", "gen_mode", "hole", "hole_h", "hole_w", "kernel_depth", "negative_slope", "pad_type", "relu", "shape_offset", "temporal_pad", "temporal_stride", "weight_fixed", "kernel_shape", "stride_shape", "pad_shape", "cudnn_workspace_limit", "cudnn_worspace_limit", "cudnn_worspace_allow_on_groups", "cudnn_workspace_allow_on_groups", "cudnn_enable_tensor_cores")
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[ConvolutionParameter.Engine]
        CAFFE: _ClassVar[ConvolutionParameter.Engine]
        CUDNN: _ClassVar[ConvolutionParameter.Engine]
        MKL2017: _ClassVar[ConvolutionParameter.Engine]
        MKLDNN: _ClassVar[ConvolutionParameter.Engine]
    DEFAULT: ConvolutionParameter.Engine
    CAFFE: ConvolutionParameter.Engine
    CUDNN: ConvolutionParameter.Engine
    MKL2017: ConvolutionParameter.Engine
    MKLDNN: ConvolutionParameter.Engine
    class CuDNNConvolutionAlgorithmSeeker(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        GET: _ClassVar[ConvolutionParameter.CuDNNConvolutionAlgorithmSeeker]
        FINDEX: _ClassVar[ConvolutionParameter.CuDNNConvolutionAlgorithmSeeker]
    GET: ConvolutionParameter.CuDNNConvolutionAlgorithmSeeker
    FINDEX: ConvolutionParameter.CuDNNConvolutionAlgorithmSeeker
    class FusionType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NONE_FUSION: _ClassVar[ConvolutionParameter.FusionType]
        SUM_FUSION: _ClassVar[ConvolutionParameter.FusionType]
    NONE_FUSION: ConvolutionParameter.FusionType
    SUM_FUSION: ConvolutionParameter.FusionType
    class QuantizeMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        tflite: _ClassVar[ConvolutionParameter.QuantizeMethod]
        ONNX: _ClassVar[ConvolutionParameter.QuantizeMethod]
        Caffe2: _ClassVar[ConvolutionParameter.QuantizeMethod]
    tflite: ConvolutionParameter.QuantizeMethod
    ONNX: ConvolutionParameter.QuantizeMethod
    Caffe2: ConvolutionParameter.QuantizeMethod
    class SaturateMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        Signed: _ClassVar[ConvolutionParameter.SaturateMethod]
        Unsigned: _ClassVar[ConvolutionParameter.SaturateMethod]
        Signed_8bit: _ClassVar[ConvolutionParameter.SaturateMethod]
        Unsigned_8bit: _ClassVar[ConvolutionParameter.SaturateMethod]
    Signed: ConvolutionParameter.SaturateMethod
    Unsigned: ConvolutionParameter.SaturateMethod
    Signed_8bit: ConvolutionParameter.SaturateMethod
    Unsigned_8bit: ConvolutionParameter.SaturateMethod
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    BIAS_TERM_FIELD_NUMBER: _ClassVar[int]
    PAD_FIELD_NUMBER: _ClassVar[int]
    KERNEL_SIZE_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    DILATION_FIELD_NUMBER: _ClassVar[int]
    PAD_H_FIELD_NUMBER: _ClassVar[int]
    PAD_W_FIELD_NUMBER: _ClassVar[int]
    KERNEL_H_FIELD_NUMBER: _ClassVar[int]
    KERNEL_W_FIELD_NUMBER: _ClassVar[int]
    STRIDE_H_FIELD_NUMBER: _ClassVar[int]
    STRIDE_W_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    FORCE_ND_IM2COL_FIELD_NUMBER: _ClassVar[int]
    CUDNN_CONVOLUTION_ALGO_SEEKER_FIELD_NUMBER: _ClassVar[int]
    CONV_ALGOS_OVERRIDE_FIELD_NUMBER: _ClassVar[int]
    CONV_ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    COEFF_FIELD_NUMBER: _ClassVar[int]
    FUSION_TYPE_FIELD_NUMBER: _ClassVar[int]
    PAD_L_FIELD_NUMBER: _ClassVar[int]
    PAD_R_FIELD_NUMBER: _ClassVar[int]
    PAD_T_FIELD_NUMBER: _ClassVar[int]
    PAD_B_FIELD_NUMBER: _ClassVar[int]
    INPUT_SCALE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCALE_FIELD_NUMBER: _ClassVar[int]
    SATURATE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_SCALE_FIELD_NUMBER: _ClassVar[int]
    INPUT_ZERO_POINT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_ZERO_POINT_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_ZERO_POINT_FIELD_NUMBER: _ClassVar[int]
    PER_CHANNEL_SCALE_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    QUANTIZE_METHOD_FIELD_NUMBER: _ClassVar[int]
    PER_CHANNEL_SCALE_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    SUBMANIFOLD_SPARSE_FIELD_NUMBER: _ClassVar[int]
    DILATION_H_FIELD_NUMBER: _ClassVar[int]
    DILATION_W_FIELD_NUMBER: _ClassVar[int]
    DIS_MODE_FIELD_NUMBER: _ClassVar[int]
    GEN_MODE_FIELD_NUMBER: _ClassVar[int]
    HOLE_FIELD_NUMBER: _ClassVar[int]
    HOLE_H_FIELD_NUMBER: _ClassVar[int]
    HOLE_W_FIELD_NUMBER: _ClassVar[int]
    KERNEL_DEPTH_FIELD_NUMBER: _ClassVar[int]
    NEGATIVE_SLOPE_FIELD_NUMBER: _ClassVar[int]
    PAD_TYPE_FIELD_NUMBER: _ClassVar[int]
    RELU_FIELD_NUMBER: _ClassVar[int]
    SHAPE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TEMPORAL_PAD_FIELD_NUMBER: _ClassVar[int]
    TEMPORAL_STRIDE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIXED_FIELD_NUMBER: _ClassVar[int]
    KERNEL_SHAPE_FIELD_NUMBER: _ClassVar[int]
    STRIDE_SHAPE_FIELD_NUMBER: _ClassVar[int]
    PAD_SHAPE_FIELD_NUMBER: _ClassVar[int]
    CUDNN_WORKSPACE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    CUDNN_WORSPACE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    CUDNN_WORSPACE_ALLOW_ON_GROUPS_FIELD_NUMBER: _ClassVar[int]
    CUDNN_WORKSPACE_ALLOW_ON_GROUPS_FIELD_NUMBER: _ClassVar[int]
    CUDNN_ENABLE_TENSOR_CORES_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    bias_term: bool
    pad: _containers.RepeatedScalarFieldContainer[int]
    kernel_size: _containers.RepeatedScalarFieldContainer[int]
    stride: _containers.RepeatedScalarFieldContainer[int]
    dilation: _containers.RepeatedScalarFieldContainer[int]
    pad_h: int
    pad_w: int
    kernel_h: int
    kernel_w: int
    stride_h: int
    stride_w: int
    group: int
    weight_filler: FillerParameter
    bias_filler: FillerParameter
    engine: ConvolutionParameter.Engine
    axis: int
    force_nd_im2col: bool
    cudnn_convolution_algo_seeker: ConvolutionParameter.CuDNNConvolutionAlgorithmSeeker
    conv_algos_override: str
    conv_algorithm: str
    coeff: _containers.RepeatedScalarFieldContainer[float]
    fusion_type: ConvolutionParameter.FusionType
    pad_l: int
    pad_r: int
    pad_t: int
    pad_b: int
    input_scale: float
    output_scale: float
    saturate: ConvolutionParameter.SaturateMethod
    weight_scale: float
    input_zero_point: int
    output_zero_point: int
    weight_zero_point: int
    per_channel_scale_weight: bool
    quantize_method: ConvolutionParameter.QuantizeMethod
    per_channel_scale_output: bool
    submanifold_sparse: bool
    dilation_h: int
    dilation_w: int
    dis_mode: bool
    gen_mode: bool
    hole: int
    hole_h: int
    hole_w: int
    kernel_depth: int
    negative_slope: float
    pad_type: int
    relu: bool
    shape_offset: _containers.RepeatedScalarFieldContainer[int]
    temporal_pad: int
    temporal_stride: int
    weight_fixed: bool
    kernel_shape: BlobShape
    stride_shape: BlobShape
    pad_shape: BlobShape
    cudnn_workspace_limit: int
    cudnn_worspace_limit: int
    cudnn_worspace_allow_on_groups: bool
    cudnn_workspace_allow_on_groups: bool
    cudnn_enable_tensor_cores: bool
    def __init__(self, num_output: _Optional[int] = ..., bias_term: _Optional[bool] = ..., pad: _Optional[_Iterable[int]] = ..., kernel_size: _Optional[_Iterable[int]] = ..., stride: _Optional[_Iterable[int]] = ..., dilation: _Optional[_Iterable[int]] = ..., pad_h: _Optional[int] = ..., pad_w: _Optional[int] = ..., kernel_h: _Optional[int] = ..., kernel_w: _Optional[int] = ..., stride_h: _Optional[int] = ..., stride_w: _Optional[int] = ..., group: _Optional[int] = ..., weight_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., engine: _Optional[_Union[ConvolutionParameter.Engine, str]] = ..., axis: _Optional[int] = ..., force_nd_im2col: _Optional[bool] = ..., cudnn_convolution_algo_seeker: _Optional[_Union[ConvolutionParameter.CuDNNConvolutionAlgorithmSeeker, str]] = ..., conv_algos_override: _Optional[str] = ..., conv_algorithm: _Optional[str] = ..., coeff: _Optional[_Iterable[float]] = ..., fusion_type: _Optional[_Union[ConvolutionParameter.FusionType, str]] = ..., pad_l: _Optional[int] = ..., pad_r: _Optional[int] = ..., pad_t: _Optional[int] = ..., pad_b: _Optional[int] = ..., input_scale: _Optional[float] = ..., output_scale: _Optional[float] = ..., saturate: _Optional[_Union[ConvolutionParameter.SaturateMethod, str]] = ..., weight_scale: _Optional[float] = ..., input_zero_point: _Optional[int] = ..., output_zero_point: _Optional[int] = ..., weight_zero_point: _Optional[int] = ..., per_channel_scale_weight: _Optional[bool] = ..., quantize_method: _Optional[_Union[ConvolutionParameter.QuantizeMethod, str]] = ..., per_channel_scale_output: _Optional[bool] = ..., submanifold_sparse: _Optional[bool] = ..., dilation_h: _Optional[int] = ..., dilation_w: _Optional[int] = ..., dis_mode: _Optional[bool] = ..., gen_mode: _Optional[bool] = ..., hole: _Optional[int] = ..., hole_h: _Optional[int] = ..., hole_w: _Optional[int] = ..., kernel_depth: _Optional[int] = ..., negative_slope: _Optional[float] = ..., pad_type: _Optional[int] = ..., relu: _Optional[bool] = ..., shape_offset: _Optional[_Iterable[int]] = ..., temporal_pad: _Optional[int] = ..., temporal_stride: _Optional[int] = ..., weight_fixed: _Optional[bool] = ..., kernel_shape: _Optional[_Union[BlobShape, _Mapping]] = ..., stride_shape: _Optional[_Union[BlobShape, _Mapping]] = ..., pad_shape: _Optional[_Union[BlobShape, _Mapping]] = ..., cudnn_workspace_limit: _Optional[int] = ..., cudnn_worspace_limit: _Optional[int] = ..., cudnn_worspace_allow_on_groups: _Optional[bool] = ..., cudnn_workspace_allow_on_groups: _Optional[bool] = ..., cudnn_enable_tensor_cores: _Optional[bool] = ...) -> None: ...

class CropParameter(_message.Message):
    __slots__ = ("axis", "offset")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    axis: int
    offset: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, axis: _Optional[int] = ..., offset: _Optional[_Iterable[int]] = ...) -> None: ...

class DataParameter(_message.Message):
    __slots__ = ("source", "batch_size", "rand_skip", "backend", "scale", "mean_file", "crop_size", "mirror", "force_encoded_color", "prefetch", "side", "parser_threads", "cache", "precache", "random", "preselection_file", "preselection_label", "range_start", "range_end", "rand_permute", "rand_permute_order", "rand_permute_seed", "slice_point", "encoding", "verbose", "subtract", "permute_every_iter", "block_size", "disk_reader_threads", "huge_video_dataset", "limit_samples", "shuffle", "threads", "enable_random_selection", "enable_pair_selection", "display_timing", "label_type", "primary_data", "synchronize_with", "synchronize_target", "images_per_blob", "output_all_labels", "balance_matches", "output_image_information", "enable_noise_for_nonmatch", "enable_debug_output", "forced_primary_label", "one_hot_label_size", "time_align", "output_image_index")
    class DB(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        LEVELDB: _ClassVar[DataParameter.DB]
        LMDB: _ClassVar[DataParameter.DB]
        IMAGEDB: _ClassVar[DataParameter.DB]
    LEVELDB: DataParameter.DB
    LMDB: DataParameter.DB
    IMAGEDB: DataParameter.DB
    class CHANNELENCODING(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UINT8: _ClassVar[DataParameter.CHANNELENCODING]
        UINT16FLOW: _ClassVar[DataParameter.CHANNELENCODING]
        BOOL1: _ClassVar[DataParameter.CHANNELENCODING]
    UINT8: DataParameter.CHANNELENCODING
    UINT16FLOW: DataParameter.CHANNELENCODING
    BOOL1: DataParameter.CHANNELENCODING
    class RANDPERMORDER(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        FIRST_PERMUTE_THEN_RANGE: _ClassVar[DataParameter.RANDPERMORDER]
        FIRST_RANGE_THEN_PERMUTE: _ClassVar[DataParameter.RANDPERMORDER]
    FIRST_PERMUTE_THEN_RANGE: DataParameter.RANDPERMORDER
    FIRST_RANGE_THEN_PERMUTE: DataParameter.RANDPERMORDER
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    RAND_SKIP_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    MEAN_FILE_FIELD_NUMBER: _ClassVar[int]
    CROP_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    FORCE_ENCODED_COLOR_FIELD_NUMBER: _ClassVar[int]
    PREFETCH_FIELD_NUMBER: _ClassVar[int]
    SIDE_FIELD_NUMBER: _ClassVar[int]
    PARSER_THREADS_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    PRECACHE_FIELD_NUMBER: _ClassVar[int]
    RANDOM_FIELD_NUMBER: _ClassVar[int]
    PRESELECTION_FILE_FIELD_NUMBER: _ClassVar[int]
    PRESELECTION_LABEL_FIELD_NUMBER: _ClassVar[int]
    RANGE_START_FIELD_NUMBER: _ClassVar[int]
    RANGE_END_FIELD_NUMBER: _ClassVar[int]
    RAND_PERMUTE_FIELD_NUMBER: _ClassVar[int]
    RAND_PERMUTE_ORDER_FIELD_NUMBER: _ClassVar[int]
    RAND_PERMUTE_SEED_FIELD_NUMBER: _ClassVar[int]
    SLICE_POINT_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    VERBOSE_FIELD_NUMBER: _ClassVar[int]
    SUBTRACT_FIELD_NUMBER: _ClassVar[int]
    PERMUTE_EVERY_ITER_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    DISK_READER_THREADS_FIELD_NUMBER: _ClassVar[int]
    HUGE_VIDEO_DATASET_FIELD_NUMBER: _ClassVar[int]
    LIMIT_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    ENABLE_RANDOM_SELECTION_FIELD_NUMBER: _ClassVar[int]
    ENABLE_PAIR_SELECTION_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_TIMING_FIELD_NUMBER: _ClassVar[int]
    LABEL_TYPE_FIELD_NUMBER: _ClassVar[int]
    PRIMARY_DATA_FIELD_NUMBER: _ClassVar[int]
    SYNCHRONIZE_WITH_FIELD_NUMBER: _ClassVar[int]
    SYNCHRONIZE_TARGET_FIELD_NUMBER: _ClassVar[int]
    IMAGES_PER_BLOB_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_ALL_LABELS_FIELD_NUMBER: _ClassVar[int]
    BALANCE_MATCHES_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_IMAGE_INFORMATION_FIELD_NUMBER: _ClassVar[int]
    ENABLE_NOISE_FOR_NONMATCH_FIELD_NUMBER: _ClassVar[int]
    ENABLE_DEBUG_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    FORCED_PRIMARY_LABEL_FIELD_NUMBER: _ClassVar[int]
    ONE_HOT_LABEL_SIZE_FIELD_NUMBER: _ClassVar[int]
    TIME_ALIGN_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_IMAGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    source: str
    batch_size: int
    rand_skip: int
    backend: DataParameter.DB
    scale: float
    mean_file: str
    crop_size: int
    mirror: bool
    force_encoded_color: bool
    prefetch: int
    side: _containers.RepeatedScalarFieldContainer[int]
    parser_threads: int
    cache: bool
    precache: bool
    random: bool
    preselection_file: str
    preselection_label: int
    range_start: int
    range_end: int
    rand_permute: bool
    rand_permute_order: DataParameter.RANDPERMORDER
    rand_permute_seed: int
    slice_point: _containers.RepeatedScalarFieldContainer[int]
    encoding: _containers.RepeatedScalarFieldContainer[DataParameter.CHANNELENCODING]
    verbose: bool
    subtract: _containers.RepeatedScalarFieldContainer[float]
    permute_every_iter: int
    block_size: int
    disk_reader_threads: int
    huge_video_dataset: bool
    limit_samples: int
    shuffle: bool
    threads: int
    enable_random_selection: bool
    enable_pair_selection: bool
    display_timing: bool
    label_type: str
    primary_data: bool
    synchronize_with: str
    synchronize_target: bool
    images_per_blob: int
    output_all_labels: bool
    balance_matches: bool
    output_image_information: bool
    enable_noise_for_nonmatch: bool
    enable_debug_output: bool
    forced_primary_label: int
    one_hot_label_size: int
    time_align: bool
    output_image_index: bool
    def __init__(self, source: _Optional[str] = ..., batch_size: _Optional[int] = ..., rand_skip: _Optional[int] = ..., backend: _Optional[_Union[DataParameter.DB, str]] = ..., scale: _Optional[float] = ..., mean_file: _Optional[str] = ..., crop_size: _Optional[int] = ..., mirror: _Optional[bool] = ..., force_encoded_color: _Optional[bool] = ..., prefetch: _Optional[int] = ..., side: _Optional[_Iterable[int]] = ..., parser_threads: _Optional[int] = ..., cache: _Optional[bool] = ..., precache: _Optional[bool] = ..., random: _Optional[bool] = ..., preselection_file: _Optional[str] = ..., preselection_label: _Optional[int] = ..., range_start: _Optional[int] = ..., range_end: _Optional[int] = ..., rand_permute: _Optional[bool] = ..., rand_permute_order: _Optional[_Union[DataParameter.RANDPERMORDER, str]] = ..., rand_permute_seed: _Optional[int] = ..., slice_point: _Optional[_Iterable[int]] = ..., encoding: _Optional[_Iterable[_Union[DataParameter.CHANNELENCODING, str]]] = ..., verbose: _Optional[bool] = ..., subtract: _Optional[_Iterable[float]] = ..., permute_every_iter: _Optional[int] = ..., block_size: _Optional[int] = ..., disk_reader_threads: _Optional[int] = ..., huge_video_dataset: _Optional[bool] = ..., limit_samples: _Optional[int] = ..., shuffle: _Optional[bool] = ..., threads: _Optional[int] = ..., enable_random_selection: _Optional[bool] = ..., enable_pair_selection: _Optional[bool] = ..., display_timing: _Optional[bool] = ..., label_type: _Optional[str] = ..., primary_data: _Optional[bool] = ..., synchronize_with: _Optional[str] = ..., synchronize_target: _Optional[bool] = ..., images_per_blob: _Optional[int] = ..., output_all_labels: _Optional[bool] = ..., balance_matches: _Optional[bool] = ..., output_image_information: _Optional[bool] = ..., enable_noise_for_nonmatch: _Optional[bool] = ..., enable_debug_output: _Optional[bool] = ..., forced_primary_label: _Optional[int] = ..., one_hot_label_size: _Optional[int] = ..., time_align: _Optional[bool] = ..., output_image_index: _Optional[bool] = ...) -> None: ...

class DropoutParameter(_message.Message):
    __slots__ = ("dropout_ratio", "sample_weights_test", "random_seed", "engine", "scale_train", "sqrt_scale", "seed", "active")
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[DropoutParameter.Engine]
        CAFFE: _ClassVar[DropoutParameter.Engine]
        CUDNN: _ClassVar[DropoutParameter.Engine]
    DEFAULT: DropoutParameter.Engine
    CAFFE: DropoutParameter.Engine
    CUDNN: DropoutParameter.Engine
    DROPOUT_RATIO_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_WEIGHTS_TEST_FIELD_NUMBER: _ClassVar[int]
    RANDOM_SEED_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    SCALE_TRAIN_FIELD_NUMBER: _ClassVar[int]
    SQRT_SCALE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    dropout_ratio: float
    sample_weights_test: bool
    random_seed: int
    engine: DropoutParameter.Engine
    scale_train: bool
    sqrt_scale: bool
    seed: int
    active: bool
    def __init__(self, dropout_ratio: _Optional[float] = ..., sample_weights_test: _Optional[bool] = ..., random_seed: _Optional[int] = ..., engine: _Optional[_Union[DropoutParameter.Engine, str]] = ..., scale_train: _Optional[bool] = ..., sqrt_scale: _Optional[bool] = ..., seed: _Optional[int] = ..., active: _Optional[bool] = ...) -> None: ...

class DummyDataParameter(_message.Message):
    __slots__ = ("data_filler", "shape", "num", "channels", "height", "width")
    DATA_FILLER_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    NUM_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    data_filler: _containers.RepeatedCompositeFieldContainer[FillerParameter]
    shape: _containers.RepeatedCompositeFieldContainer[BlobShape]
    num: _containers.RepeatedScalarFieldContainer[int]
    channels: _containers.RepeatedScalarFieldContainer[int]
    height: _containers.RepeatedScalarFieldContainer[int]
    width: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, data_filler: _Optional[_Iterable[_Union[FillerParameter, _Mapping]]] = ..., shape: _Optional[_Iterable[_Union[BlobShape, _Mapping]]] = ..., num: _Optional[_Iterable[int]] = ..., channels: _Optional[_Iterable[int]] = ..., height: _Optional[_Iterable[int]] = ..., width: _Optional[_Iterable[int]] = ...) -> None: ...

class EltwiseParameter(_message.Message):
    __slots__ = ("operation", "coeff", "stable_prod_grad", "engine", "saturate", "axis", "input_scale", "output_scale", "input_zero_point", "output_zero_point", "quantize_method", "coeff_blob", "allow_single_batch_input")
    class EltwiseOp(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PROD: _ClassVar[EltwiseParameter.EltwiseOp]
        SUM: _ClassVar[EltwiseParameter.EltwiseOp]
        MAX: _ClassVar[EltwiseParameter.EltwiseOp]
        DIV: _ClassVar[EltwiseParameter.EltwiseOp]
        MIN: _ClassVar[EltwiseParameter.EltwiseOp]
        SORT: _ClassVar[EltwiseParameter.EltwiseOp]
        STOCHASTIC_SUM: _ClassVar[EltwiseParameter.EltwiseOp]
    PROD: EltwiseParameter.EltwiseOp
    SUM: EltwiseParameter.EltwiseOp
    MAX: EltwiseParameter.EltwiseOp
    DIV: EltwiseParameter.EltwiseOp
    MIN: EltwiseParameter.EltwiseOp
    SORT: EltwiseParameter.EltwiseOp
    STOCHASTIC_SUM: EltwiseParameter.EltwiseOp
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[EltwiseParameter.Engine]
        CAFFE: _ClassVar[EltwiseParameter.Engine]
        MKL2017: _ClassVar[EltwiseParameter.Engine]
        MKLDNN: _ClassVar[EltwiseParameter.Engine]
    DEFAULT: EltwiseParameter.Engine
    CAFFE: EltwiseParameter.Engine
    MKL2017: EltwiseParameter.Engine
    MKLDNN: EltwiseParameter.Engine
    class QuantizeMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        tflite: _ClassVar[EltwiseParameter.QuantizeMethod]
        ONNX: _ClassVar[EltwiseParameter.QuantizeMethod]
        Caffe2: _ClassVar[EltwiseParameter.QuantizeMethod]
    tflite: EltwiseParameter.QuantizeMethod
    ONNX: EltwiseParameter.QuantizeMethod
    Caffe2: EltwiseParameter.QuantizeMethod
    class SaturateMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        Signed: _ClassVar[EltwiseParameter.SaturateMethod]
        Unsigned: _ClassVar[EltwiseParameter.SaturateMethod]
        Signed_8bit: _ClassVar[EltwiseParameter.SaturateMethod]
        Unsigned_8bit: _ClassVar[EltwiseParameter.SaturateMethod]
    Signed: EltwiseParameter.SaturateMethod
    Unsigned: EltwiseParameter.SaturateMethod
    Signed_8bit: EltwiseParameter.SaturateMethod
    Unsigned_8bit: EltwiseParameter.SaturateMethod
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    COEFF_FIELD_NUMBER: _ClassVar[int]
    STABLE_PROD_GRAD_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    SATURATE_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    INPUT_SCALE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCALE_FIELD_NUMBER: _ClassVar[int]
    INPUT_ZERO_POINT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_ZERO_POINT_FIELD_NUMBER: _ClassVar[int]
    QUANTIZE_METHOD_FIELD_NUMBER: _ClassVar[int]
    COEFF_BLOB_FIELD_NUMBER: _ClassVar[int]
    ALLOW_SINGLE_BATCH_INPUT_FIELD_NUMBER: _ClassVar[int]
    operation: EltwiseParameter.EltwiseOp
    coeff: _containers.RepeatedScalarFieldContainer[float]
    stable_prod_grad: bool
    engine: EltwiseParameter.Engine
    saturate: EltwiseParameter.SaturateMethod
    axis: int
    input_scale: _containers.RepeatedScalarFieldContainer[float]
    output_scale: float
    input_zero_point: _containers.RepeatedScalarFieldContainer[int]
    output_zero_point: int
    quantize_method: EltwiseParameter.QuantizeMethod
    coeff_blob: bool
    allow_single_batch_input: bool
    def __init__(self, operation: _Optional[_Union[EltwiseParameter.EltwiseOp, str]] = ..., coeff: _Optional[_Iterable[float]] = ..., stable_prod_grad: _Optional[bool] = ..., engine: _Optional[_Union[EltwiseParameter.Engine, str]] = ..., saturate: _Optional[_Union[EltwiseParameter.SaturateMethod, str]] = ..., axis: _Optional[int] = ..., input_scale: _Optional[_Iterable[float]] = ..., output_scale: _Optional[float] = ..., input_zero_point: _Optional[_Iterable[int]] = ..., output_zero_point: _Optional[int] = ..., quantize_method: _Optional[_Union[EltwiseParameter.QuantizeMethod, str]] = ..., coeff_blob: _Optional[bool] = ..., allow_single_batch_input: _Optional[bool] = ...) -> None: ...

class ELUParameter(_message.Message):
    __slots__ = ("alpha",)
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    LAMBDA_FIELD_NUMBER: _ClassVar[int]
    alpha: float
    def __init__(self, alpha: _Optional[float] = ..., **kwargs) -> None: ...

class EmbedParameter(_message.Message):
    __slots__ = ("num_output", "input_dim", "bias_term", "weight_filler", "bias_filler", "backward_compute_type")
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    INPUT_DIM_FIELD_NUMBER: _ClassVar[int]
    BIAS_TERM_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    BACKWARD_COMPUTE_TYPE_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    input_dim: int
    bias_term: bool
    weight_filler: FillerParameter
    bias_filler: FillerParameter
    backward_compute_type: str
    def __init__(self, num_output: _Optional[int] = ..., input_dim: _Optional[int] = ..., bias_term: _Optional[bool] = ..., weight_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., backward_compute_type: _Optional[str] = ...) -> None: ...

class ExpParameter(_message.Message):
    __slots__ = ("base", "scale", "shift")
    BASE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    SHIFT_FIELD_NUMBER: _ClassVar[int]
    base: float
    scale: float
    shift: float
    def __init__(self, base: _Optional[float] = ..., scale: _Optional[float] = ..., shift: _Optional[float] = ...) -> None: ...

class FlattenParameter(_message.Message):
    __slots__ = ("axis", "end_axis")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    END_AXIS_FIELD_NUMBER: _ClassVar[int]
    axis: int
    end_axis: int
    def __init__(self, axis: _Optional[int] = ..., end_axis: _Optional[int] = ...) -> None: ...

class HDF5DataParameter(_message.Message):
    __slots__ = ("source", "batch_size", "shuffle")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    source: str
    batch_size: int
    shuffle: bool
    def __init__(self, source: _Optional[str] = ..., batch_size: _Optional[int] = ..., shuffle: _Optional[bool] = ...) -> None: ...

class HDF5OutputParameter(_message.Message):
    __slots__ = ("file_name",)
    FILE_NAME_FIELD_NUMBER: _ClassVar[int]
    file_name: str
    def __init__(self, file_name: _Optional[str] = ...) -> None: ...

class HingeLossParameter(_message.Message):
    __slots__ = ("norm",)
    class Norm(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        L1: _ClassVar[HingeLossParameter.Norm]
        L2: _ClassVar[HingeLossParameter.Norm]
    L1: HingeLossParameter.Norm
    L2: HingeLossParameter.Norm
    NORM_FIELD_NUMBER: _ClassVar[int]
    norm: HingeLossParameter.Norm
    def __init__(self, norm: _Optional[_Union[HingeLossParameter.Norm, str]] = ...) -> None: ...

class ImageDataParameter(_message.Message):
    __slots__ = ("source", "batch_size", "rand_skip", "shuffle", "new_height", "new_width", "is_color", "scale", "mean_file", "crop_size", "mirror", "root_folder", "face_transform", "max_shear_ratio", "ignore_label", "label_type", "dataset_share_per_node", "max_random_scale", "max_random_shift", "face_mirror", "face_point_num", "balance_class", "balance_by", "label_cut_start", "label_cut_end", "cache", "max_aspect_ratio", "max_rotate_angle", "min_height", "min_random_scale", "min_width", "precache", "short_side", "threads", "new_length", "show_data", "use_image", "use_temporal_jitter", "sampling_rate", "mean_value", "is_flow", "num_truth_channels", "truth_scale", "new_dim", "bicubic")
    class LabelType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NONE: _ClassVar[ImageDataParameter.LabelType]
        IMAGE: _ClassVar[ImageDataParameter.LabelType]
        PIXEL: _ClassVar[ImageDataParameter.LabelType]
    NONE: ImageDataParameter.LabelType
    IMAGE: ImageDataParameter.LabelType
    PIXEL: ImageDataParameter.LabelType
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    RAND_SKIP_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    NEW_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    NEW_WIDTH_FIELD_NUMBER: _ClassVar[int]
    IS_COLOR_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    MEAN_FILE_FIELD_NUMBER: _ClassVar[int]
    CROP_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    ROOT_FOLDER_FIELD_NUMBER: _ClassVar[int]
    FACE_TRANSFORM_FIELD_NUMBER: _ClassVar[int]
    MAX_SHEAR_RATIO_FIELD_NUMBER: _ClassVar[int]
    IGNORE_LABEL_FIELD_NUMBER: _ClassVar[int]
    LABEL_TYPE_FIELD_NUMBER: _ClassVar[int]
    DATASET_SHARE_PER_NODE_FIELD_NUMBER: _ClassVar[int]
    MAX_RANDOM_SCALE_FIELD_NUMBER: _ClassVar[int]
    MAX_RANDOM_SHIFT_FIELD_NUMBER: _ClassVar[int]
    FACE_MIRROR_FIELD_NUMBER: _ClassVar[int]
    FACE_POINT_NUM_FIELD_NUMBER: _ClassVar[int]
    BALANCE_CLASS_FIELD_NUMBER: _ClassVar[int]
    BALANCE_BY_FIELD_NUMBER: _ClassVar[int]
    LABEL_CUT_START_FIELD_NUMBER: _ClassVar[int]
    LABEL_CUT_END_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    MAX_ASPECT_RATIO_FIELD_NUMBER: _ClassVar[int]
    MAX_ROTATE_ANGLE_FIELD_NUMBER: _ClassVar[int]
    MIN_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    MIN_RANDOM_SCALE_FIELD_NUMBER: _ClassVar[int]
    MIN_WIDTH_FIELD_NUMBER: _ClassVar[int]
    PRECACHE_FIELD_NUMBER: _ClassVar[int]
    SHORT_SIDE_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    NEW_LENGTH_FIELD_NUMBER: _ClassVar[int]
    SHOW_DATA_FIELD_NUMBER: _ClassVar[int]
    USE_IMAGE_FIELD_NUMBER: _ClassVar[int]
    USE_TEMPORAL_JITTER_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_RATE_FIELD_NUMBER: _ClassVar[int]
    MEAN_VALUE_FIELD_NUMBER: _ClassVar[int]
    IS_FLOW_FIELD_NUMBER: _ClassVar[int]
    NUM_TRUTH_CHANNELS_FIELD_NUMBER: _ClassVar[int]
    TRUTH_SCALE_FIELD_NUMBER: _ClassVar[int]
    NEW_DIM_FIELD_NUMBER: _ClassVar[int]
    BICUBIC_FIELD_NUMBER: _ClassVar[int]
    source: str
    batch_size: int
    rand_skip: int
    shuffle: bool
    new_height: int
    new_width: int
    is_color: bool
    scale: float
    mean_file: str
    crop_size: int
    mirror: bool
    root_folder: str
    face_transform: bool
    max_shear_ratio: float
    ignore_label: int
    label_type: ImageDataParameter.LabelType
    dataset_share_per_node: float
    max_random_scale: float
    max_random_shift: int
    face_mirror: bool
    face_point_num: int
    balance_class: bool
    balance_by: int
    label_cut_start: int
    label_cut_end: int
    cache: bool
    max_aspect_ratio: float
    max_rotate_angle: float
    min_height: int
    min_random_scale: float
    min_width: int
    precache: bool
    short_side: int
    threads: int
    new_length: int
    show_data: bool
    use_image: bool
    use_temporal_jitter: bool
    sampling_rate: int
    mean_value: float
    is_flow: bool
    num_truth_channels: int
    truth_scale: float
    new_dim: int
    bicubic: bool
    def __init__(self, source: _Optional[str] = ..., batch_size: _Optional[int] = ..., rand_skip: _Optional[int] = ..., shuffle: _Optional[bool] = ..., new_height: _Optional[int] = ..., new_width: _Optional[int] = ..., is_color: _Optional[bool] = ..., scale: _Optional[float] = ..., mean_file: _Optional[str] = ..., crop_size: _Optional[int] = ..., mirror: _Optional[bool] = ..., root_folder: _Optional[str] = ..., face_transform: _Optional[bool] = ..., max_shear_ratio: _Optional[float] = ..., ignore_label: _Optional[int] = ..., label_type: _Optional[_Union[ImageDataParameter.LabelType, str]] = ..., dataset_share_per_node: _Optional[float] = ..., max_random_scale: _Optional[float] = ..., max_random_shift: _Optional[int] = ..., face_mirror: _Optional[bool] = ..., face_point_num: _Optional[int] = ..., balance_class: _Optional[bool] = ..., balance_by: _Optional[int] = ..., label_cut_start: _Optional[int] = ..., label_cut_end: _Optional[int] = ..., cache: _Optional[bool] = ..., max_aspect_ratio: _Optional[float] = ..., max_rotate_angle: _Optional[float] = ..., min_height: _Optional[int] = ..., min_random_scale: _Optional[float] = ..., min_width: _Optional[int] = ..., precache: _Optional[bool] = ..., short_side: _Optional[int] = ..., threads: _Optional[int] = ..., new_length: _Optional[int] = ..., show_data: _Optional[bool] = ..., use_image: _Optional[bool] = ..., use_temporal_jitter: _Optional[bool] = ..., sampling_rate: _Optional[int] = ..., mean_value: _Optional[float] = ..., is_flow: _Optional[bool] = ..., num_truth_channels: _Optional[int] = ..., truth_scale: _Optional[float] = ..., new_dim: _Optional[int] = ..., bicubic: _Optional[bool] = ...) -> None: ...

class InfogainLossParameter(_message.Message):
    __slots__ = ("source", "axis")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    source: str
    axis: int
    def __init__(self, source: _Optional[str] = ..., axis: _Optional[int] = ...) -> None: ...

class InnerProductParameter(_message.Message):
    __slots__ = ("num_output", "bias_term", "weight_filler", "bias_filler", "axis", "transpose", "engine", "dis_mode", "gen_mode", "input_scale", "output_scale", "weight_scale", "input_zero_point", "output_zero_point", "weight_zero_point", "saturate", "quantize_method", "negative_slope", "normalize", "relu", "weight_fixed", "output_contains_predictions", "min_top_axes", "enable_noise", "sigma_init", "bias_grad_scale")
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[InnerProductParameter.Engine]
        CAFFE: _ClassVar[InnerProductParameter.Engine]
        CUDNN: _ClassVar[InnerProductParameter.Engine]
        MKLDNN: _ClassVar[InnerProductParameter.Engine]
    DEFAULT: InnerProductParameter.Engine
    CAFFE: InnerProductParameter.Engine
    CUDNN: InnerProductParameter.Engine
    MKLDNN: InnerProductParameter.Engine
    class QuantizeMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        tflite: _ClassVar[InnerProductParameter.QuantizeMethod]
        ONNX: _ClassVar[InnerProductParameter.QuantizeMethod]
        Caffe2: _ClassVar[InnerProductParameter.QuantizeMethod]
    tflite: InnerProductParameter.QuantizeMethod
    ONNX: InnerProductParameter.QuantizeMethod
    Caffe2: InnerProductParameter.QuantizeMethod
    class SaturateMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        Signed: _ClassVar[InnerProductParameter.SaturateMethod]
        Unsigned: _ClassVar[InnerProductParameter.SaturateMethod]
        Signed_8bit: _ClassVar[InnerProductParameter.SaturateMethod]
        Unsigned_8bit: _ClassVar[InnerProductParameter.SaturateMethod]
    Signed: InnerProductParameter.SaturateMethod
    Unsigned: InnerProductParameter.SaturateMethod
    Signed_8bit: InnerProductParameter.SaturateMethod
    Unsigned_8bit: InnerProductParameter.SaturateMethod
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    BIAS_TERM_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    TRANSPOSE_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    DIS_MODE_FIELD_NUMBER: _ClassVar[int]
    GEN_MODE_FIELD_NUMBER: _ClassVar[int]
    INPUT_SCALE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCALE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_SCALE_FIELD_NUMBER: _ClassVar[int]
    INPUT_ZERO_POINT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_ZERO_POINT_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_ZERO_POINT_FIELD_NUMBER: _ClassVar[int]
    SATURATE_FIELD_NUMBER: _ClassVar[int]
    QUANTIZE_METHOD_FIELD_NUMBER: _ClassVar[int]
    NEGATIVE_SLOPE_FIELD_NUMBER: _ClassVar[int]
    NORMALIZE_FIELD_NUMBER: _ClassVar[int]
    RELU_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIXED_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_CONTAINS_PREDICTIONS_FIELD_NUMBER: _ClassVar[int]
    MIN_TOP_AXES_FIELD_NUMBER: _ClassVar[int]
    ENABLE_NOISE_FIELD_NUMBER: _ClassVar[int]
    SIGMA_INIT_FIELD_NUMBER: _ClassVar[int]
    BIAS_GRAD_SCALE_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    bias_term: bool
    weight_filler: FillerParameter
    bias_filler: FillerParameter
    axis: int
    transpose: bool
    engine: InnerProductParameter.Engine
    dis_mode: bool
    gen_mode: bool
    input_scale: float
    output_scale: float
    weight_scale: float
    input_zero_point: int
    output_zero_point: int
    weight_zero_point: int
    saturate: InnerProductParameter.SaturateMethod
    quantize_method: InnerProductParameter.QuantizeMethod
    negative_slope: float
    normalize: bool
    relu: bool
    weight_fixed: bool
    output_contains_predictions: bool
    min_top_axes: int
    enable_noise: bool
    sigma_init: float
    bias_grad_scale: float
    def __init__(self, num_output: _Optional[int] = ..., bias_term: _Optional[bool] = ..., weight_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., axis: _Optional[int] = ..., transpose: _Optional[bool] = ..., engine: _Optional[_Union[InnerProductParameter.Engine, str]] = ..., dis_mode: _Optional[bool] = ..., gen_mode: _Optional[bool] = ..., input_scale: _Optional[float] = ..., output_scale: _Optional[float] = ..., weight_scale: _Optional[float] = ..., input_zero_point: _Optional[int] = ..., output_zero_point: _Optional[int] = ..., weight_zero_point: _Optional[int] = ..., saturate: _Optional[_Union[InnerProductParameter.SaturateMethod, str]] = ..., quantize_method: _Optional[_Union[InnerProductParameter.QuantizeMethod, str]] = ..., negative_slope: _Optional[float] = ..., normalize: _Optional[bool] = ..., relu: _Optional[bool] = ..., weight_fixed: _Optional[bool] = ..., output_contains_predictions: _Optional[bool] = ..., min_top_axes: _Optional[int] = ..., enable_noise: _Optional[bool] = ..., sigma_init: _Optional[float] = ..., bias_grad_scale: _Optional[float] = ...) -> None: ...

class InputParameter(_message.Message):
    __slots__ = ("shape", "output_scale", "output_zero_point")
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCALE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_ZERO_POINT_FIELD_NUMBER: _ClassVar[int]
    shape: _containers.RepeatedCompositeFieldContainer[BlobShape]
    output_scale: float
    output_zero_point: int
    def __init__(self, shape: _Optional[_Iterable[_Union[BlobShape, _Mapping]]] = ..., output_scale: _Optional[float] = ..., output_zero_point: _Optional[int] = ...) -> None: ...

class LogParameter(_message.Message):
    __slots__ = ("base", "scale", "shift")
    BASE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    SHIFT_FIELD_NUMBER: _ClassVar[int]
    base: float
    scale: float
    shift: float
    def __init__(self, base: _Optional[float] = ..., scale: _Optional[float] = ..., shift: _Optional[float] = ...) -> None: ...

class LRNParameter(_message.Message):
    __slots__ = ("local_size", "alpha", "beta", "norm_region", "k", "engine", "input_scale", "output_scale", "deconv_ignore")
    class NormRegion(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ACROSS_CHANNELS: _ClassVar[LRNParameter.NormRegion]
        WITHIN_CHANNEL: _ClassVar[LRNParameter.NormRegion]
    ACROSS_CHANNELS: LRNParameter.NormRegion
    WITHIN_CHANNEL: LRNParameter.NormRegion
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[LRNParameter.Engine]
        CAFFE: _ClassVar[LRNParameter.Engine]
        CUDNN: _ClassVar[LRNParameter.Engine]
        MKL2017: _ClassVar[LRNParameter.Engine]
        MKLDNN: _ClassVar[LRNParameter.Engine]
    DEFAULT: LRNParameter.Engine
    CAFFE: LRNParameter.Engine
    CUDNN: LRNParameter.Engine
    MKL2017: LRNParameter.Engine
    MKLDNN: LRNParameter.Engine
    LOCAL_SIZE_FIELD_NUMBER: _ClassVar[int]
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    BETA_FIELD_NUMBER: _ClassVar[int]
    NORM_REGION_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    INPUT_SCALE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCALE_FIELD_NUMBER: _ClassVar[int]
    DECONV_IGNORE_FIELD_NUMBER: _ClassVar[int]
    local_size: int
    alpha: float
    beta: float
    norm_region: LRNParameter.NormRegion
    k: float
    engine: LRNParameter.Engine
    input_scale: float
    output_scale: float
    deconv_ignore: bool
    def __init__(self, local_size: _Optional[int] = ..., alpha: _Optional[float] = ..., beta: _Optional[float] = ..., norm_region: _Optional[_Union[LRNParameter.NormRegion, str]] = ..., k: _Optional[float] = ..., engine: _Optional[_Union[LRNParameter.Engine, str]] = ..., input_scale: _Optional[float] = ..., output_scale: _Optional[float] = ..., deconv_ignore: _Optional[bool] = ...) -> None: ...

class MemoryDataParameter(_message.Message):
    __slots__ = ("batch_size", "channels", "height", "width", "transpose", "channels1", "channels2", "channels3", "channels4", "height1", "height2", "height3", "height4", "width1", "width2", "width3", "width4", "input_shapes", "label_channels", "label_height", "label_width", "label_type", "primary_data", "clip_length1", "clip_length2")
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    TRANSPOSE_FIELD_NUMBER: _ClassVar[int]
    CHANNELS1_FIELD_NUMBER: _ClassVar[int]
    CHANNELS2_FIELD_NUMBER: _ClassVar[int]
    CHANNELS3_FIELD_NUMBER: _ClassVar[int]
    CHANNELS4_FIELD_NUMBER: _ClassVar[int]
    HEIGHT1_FIELD_NUMBER: _ClassVar[int]
    HEIGHT2_FIELD_NUMBER: _ClassVar[int]
    HEIGHT3_FIELD_NUMBER: _ClassVar[int]
    HEIGHT4_FIELD_NUMBER: _ClassVar[int]
    WIDTH1_FIELD_NUMBER: _ClassVar[int]
    WIDTH2_FIELD_NUMBER: _ClassVar[int]
    WIDTH3_FIELD_NUMBER: _ClassVar[int]
    WIDTH4_FIELD_NUMBER: _ClassVar[int]
    INPUT_SHAPES_FIELD_NUMBER: _ClassVar[int]
    LABEL_CHANNELS_FIELD_NUMBER: _ClassVar[int]
    LABEL_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    LABEL_WIDTH_FIELD_NUMBER: _ClassVar[int]
    LABEL_TYPE_FIELD_NUMBER: _ClassVar[int]
    PRIMARY_DATA_FIELD_NUMBER: _ClassVar[int]
    CLIP_LENGTH1_FIELD_NUMBER: _ClassVar[int]
    CLIP_LENGTH2_FIELD_NUMBER: _ClassVar[int]
    batch_size: int
    channels: int
    height: int
    width: int
    transpose: bool
    channels1: int
    channels2: int
    channels3: int
    channels4: int
    height1: int
    height2: int
    height3: int
    height4: int
    width1: int
    width2: int
    width3: int
    width4: int
    input_shapes: _containers.RepeatedCompositeFieldContainer[BlobShape]
    label_channels: int
    label_height: int
    label_width: int
    label_type: str
    primary_data: bool
    clip_length1: int
    clip_length2: int
    def __init__(self, batch_size: _Optional[int] = ..., channels: _Optional[int] = ..., height: _Optional[int] = ..., width: _Optional[int] = ..., transpose: _Optional[bool] = ..., channels1: _Optional[int] = ..., channels2: _Optional[int] = ..., channels3: _Optional[int] = ..., channels4: _Optional[int] = ..., height1: _Optional[int] = ..., height2: _Optional[int] = ..., height3: _Optional[int] = ..., height4: _Optional[int] = ..., width1: _Optional[int] = ..., width2: _Optional[int] = ..., width3: _Optional[int] = ..., width4: _Optional[int] = ..., input_shapes: _Optional[_Iterable[_Union[BlobShape, _Mapping]]] = ..., label_channels: _Optional[int] = ..., label_height: _Optional[int] = ..., label_width: _Optional[int] = ..., label_type: _Optional[str] = ..., primary_data: _Optional[bool] = ..., clip_length1: _Optional[int] = ..., clip_length2: _Optional[int] = ...) -> None: ...

class MVNParameter(_message.Message):
    __slots__ = ("normalize_variance", "across_channels", "eps", "add_eps_before_sqrt")
    NORMALIZE_VARIANCE_FIELD_NUMBER: _ClassVar[int]
    ACROSS_CHANNELS_FIELD_NUMBER: _ClassVar[int]
    EPS_FIELD_NUMBER: _ClassVar[int]
    ADD_EPS_BEFORE_SQRT_FIELD_NUMBER: _ClassVar[int]
    normalize_variance: bool
    across_channels: bool
    eps: float
    add_eps_before_sqrt: bool
    def __init__(self, normalize_variance: _Optional[bool] = ..., across_channels: _Optional[bool] = ..., eps: _Optional[float] = ..., add_eps_before_sqrt: _Optional[bool] = ...) -> None: ...

class ParameterParameter(_message.Message):
    __slots__ = ("shape", "blob_filler")
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    BLOB_FILLER_FIELD_NUMBER: _ClassVar[int]
    shape: BlobShape
    blob_filler: FillerParameter
    def __init__(self, shape: _Optional[_Union[BlobShape, _Mapping]] = ..., blob_filler: _Optional[_Union[FillerParameter, _Mapping]] = ...) -> None: ...

class PoolingParameter(_message.Message):
    __slots__ = ("pool", "pad", "pad_h", "pad_w", "kernel_size", "kernel_h", "kernel_w", "stride", "stride_h", "stride_w", "engine", "global_pooling", "round_mode", "axis", "pad_3d", "kernel_size_3d", "pad_r", "pad_t", "pad_b", "output_shift_instead_division", "saturate", "input_scale", "output_scale", "input_zero_point", "output_zero_point", "quantize_method", "torch_pooling", "avg_include_pad", "blobs_a_min", "blobs_lr", "ceil_mode", "kernel_depth", "pad_l", "pad_type", "stride_3d", "temporal_pad", "temporal_stride", "kernel_shape", "stride_shape", "pad_shape", "reshape_algorithm")
    class PoolMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MAX: _ClassVar[PoolingParameter.PoolMethod]
        AVE: _ClassVar[PoolingParameter.PoolMethod]
        STOCHASTIC: _ClassVar[PoolingParameter.PoolMethod]
        AVE_EXC_PAD: _ClassVar[PoolingParameter.PoolMethod]
        DEF_ALL: _ClassVar[PoolingParameter.PoolMethod]
        DEF_ALL2: _ClassVar[PoolingParameter.PoolMethod]
        DEF_ALL3: _ClassVar[PoolingParameter.PoolMethod]
        DEF_ALL4: _ClassVar[PoolingParameter.PoolMethod]
        LOWRES: _ClassVar[PoolingParameter.PoolMethod]
        AVE_TF: _ClassVar[PoolingParameter.PoolMethod]
        DEF: _ClassVar[PoolingParameter.PoolMethod]
    MAX: PoolingParameter.PoolMethod
    AVE: PoolingParameter.PoolMethod
    STOCHASTIC: PoolingParameter.PoolMethod
    AVE_EXC_PAD: PoolingParameter.PoolMethod
    DEF_ALL: PoolingParameter.PoolMethod
    DEF_ALL2: PoolingParameter.PoolMethod
    DEF_ALL3: PoolingParameter.PoolMethod
    DEF_ALL4: PoolingParameter.PoolMethod
    LOWRES: PoolingParameter.PoolMethod
    AVE_TF: PoolingParameter.PoolMethod
    DEF: PoolingParameter.PoolMethod
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[PoolingParameter.Engine]
        CAFFE: _ClassVar[PoolingParameter.Engine]
        CUDNN: _ClassVar[PoolingParameter.Engine]
        MKL2017: _ClassVar[PoolingParameter.Engine]
        MKLDNN: _ClassVar[PoolingParameter.Engine]
    DEFAULT: PoolingParameter.Engine
    CAFFE: PoolingParameter.Engine
    CUDNN: PoolingParameter.Engine
    MKL2017: PoolingParameter.Engine
    MKLDNN: PoolingParameter.Engine
    class RoundMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CEIL: _ClassVar[PoolingParameter.RoundMode]
        FLOOR: _ClassVar[PoolingParameter.RoundMode]
    CEIL: PoolingParameter.RoundMode
    FLOOR: PoolingParameter.RoundMode
    class QuantizeMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        tflite: _ClassVar[PoolingParameter.QuantizeMethod]
        ONNX: _ClassVar[PoolingParameter.QuantizeMethod]
        Caffe2: _ClassVar[PoolingParameter.QuantizeMethod]
    tflite: PoolingParameter.QuantizeMethod
    ONNX: PoolingParameter.QuantizeMethod
    Caffe2: PoolingParameter.QuantizeMethod
    class SaturateMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        Signed: _ClassVar[PoolingParameter.SaturateMethod]
        Unsigned: _ClassVar[PoolingParameter.SaturateMethod]
        Signed_8bit: _ClassVar[PoolingParameter.SaturateMethod]
        Unsigned_8bit: _ClassVar[PoolingParameter.SaturateMethod]
    Signed: PoolingParameter.SaturateMethod
    Unsigned: PoolingParameter.SaturateMethod
    Signed_8bit: PoolingParameter.SaturateMethod
    Unsigned_8bit: PoolingParameter.SaturateMethod
    POOL_FIELD_NUMBER: _ClassVar[int]
    PAD_FIELD_NUMBER: _ClassVar[int]
    PAD_H_FIELD_NUMBER: _ClassVar[int]
    PAD_W_FIELD_NUMBER: _ClassVar[int]
    KERNEL_SIZE_FIELD_NUMBER: _ClassVar[int]
    KERNEL_H_FIELD_NUMBER: _ClassVar[int]
    KERNEL_W_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    STRIDE_H_FIELD_NUMBER: _ClassVar[int]
    STRIDE_W_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_POOLING_FIELD_NUMBER: _ClassVar[int]
    ROUND_MODE_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    PAD_3D_FIELD_NUMBER: _ClassVar[int]
    KERNEL_SIZE_3D_FIELD_NUMBER: _ClassVar[int]
    PAD_R_FIELD_NUMBER: _ClassVar[int]
    PAD_T_FIELD_NUMBER: _ClassVar[int]
    PAD_B_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SHIFT_INSTEAD_DIVISION_FIELD_NUMBER: _ClassVar[int]
    SATURATE_FIELD_NUMBER: _ClassVar[int]
    INPUT_SCALE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCALE_FIELD_NUMBER: _ClassVar[int]
    INPUT_ZERO_POINT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_ZERO_POINT_FIELD_NUMBER: _ClassVar[int]
    QUANTIZE_METHOD_FIELD_NUMBER: _ClassVar[int]
    TORCH_POOLING_FIELD_NUMBER: _ClassVar[int]
    AVG_INCLUDE_PAD_FIELD_NUMBER: _ClassVar[int]
    BLOBS_A_MIN_FIELD_NUMBER: _ClassVar[int]
    BLOBS_LR_FIELD_NUMBER: _ClassVar[int]
    CEIL_MODE_FIELD_NUMBER: _ClassVar[int]
    KERNEL_DEPTH_FIELD_NUMBER: _ClassVar[int]
    PAD_L_FIELD_NUMBER: _ClassVar[int]
    PAD_TYPE_FIELD_NUMBER: _ClassVar[int]
    STRIDE_3D_FIELD_NUMBER: _ClassVar[int]
    TEMPORAL_PAD_FIELD_NUMBER: _ClassVar[int]
    TEMPORAL_STRIDE_FIELD_NUMBER: _ClassVar[int]
    KERNEL_SHAPE_FIELD_NUMBER: _ClassVar[int]
    STRIDE_SHAPE_FIELD_NUMBER: _ClassVar[int]
    PAD_SHAPE_FIELD_NUMBER: _ClassVar[int]
    RESHAPE_ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    pool: PoolingParameter.PoolMethod
    pad: int
    pad_h: int
    pad_w: int
    kernel_size: int
    kernel_h: int
    kernel_w: int
    stride: int
    stride_h: int
    stride_w: int
    engine: PoolingParameter.Engine
    global_pooling: bool
    round_mode: PoolingParameter.RoundMode
    axis: int
    pad_3d: _containers.RepeatedScalarFieldContainer[int]
    kernel_size_3d: _containers.RepeatedScalarFieldContainer[int]
    pad_r: int
    pad_t: int
    pad_b: int
    output_shift_instead_division: int
    saturate: PoolingParameter.SaturateMethod
    input_scale: float
    output_scale: float
    input_zero_point: int
    output_zero_point: int
    quantize_method: PoolingParameter.QuantizeMethod
    torch_pooling: bool
    avg_include_pad: bool
    blobs_a_min: float
    blobs_lr: float
    ceil_mode: bool
    kernel_depth: int
    pad_l: int
    pad_type: int
    stride_3d: _containers.RepeatedScalarFieldContainer[int]
    temporal_pad: int
    temporal_stride: int
    kernel_shape: BlobShape
    stride_shape: BlobShape
    pad_shape: BlobShape
    reshape_algorithm: str
    def __init__(self, pool: _Optional[_Union[PoolingParameter.PoolMethod, str]] = ..., pad: _Optional[int] = ..., pad_h: _Optional[int] = ..., pad_w: _Optional[int] = ..., kernel_size: _Optional[int] = ..., kernel_h: _Optional[int] = ..., kernel_w: _Optional[int] = ..., stride: _Optional[int] = ..., stride_h: _Optional[int] = ..., stride_w: _Optional[int] = ..., engine: _Optional[_Union[PoolingParameter.Engine, str]] = ..., global_pooling: _Optional[bool] = ..., round_mode: _Optional[_Union[PoolingParameter.RoundMode, str]] = ..., axis: _Optional[int] = ..., pad_3d: _Optional[_Iterable[int]] = ..., kernel_size_3d: _Optional[_Iterable[int]] = ..., pad_r: _Optional[int] = ..., pad_t: _Optional[int] = ..., pad_b: _Optional[int] = ..., output_shift_instead_division: _Optional[int] = ..., saturate: _Optional[_Union[PoolingParameter.SaturateMethod, str]] = ..., input_scale: _Optional[float] = ..., output_scale: _Optional[float] = ..., input_zero_point: _Optional[int] = ..., output_zero_point: _Optional[int] = ..., quantize_method: _Optional[_Union[PoolingParameter.QuantizeMethod, str]] = ..., torch_pooling: _Optional[bool] = ..., avg_include_pad: _Optional[bool] = ..., blobs_a_min: _Optional[float] = ..., blobs_lr: _Optional[float] = ..., ceil_mode: _Optional[bool] = ..., kernel_depth: _Optional[int] = ..., pad_l: _Optional[int] = ..., pad_type: _Optional[int] = ..., stride_3d: _Optional[_Iterable[int]] = ..., temporal_pad: _Optional[int] = ..., temporal_stride: _Optional[int] = ..., kernel_shape: _Optional[_Union[BlobShape, _Mapping]] = ..., stride_shape: _Optional[_Union[BlobShape, _Mapping]] = ..., pad_shape: _Optional[_Union[BlobShape, _Mapping]] = ..., reshape_algorithm: _Optional[str] = ...) -> None: ...

class PowerParameter(_message.Message):
    __slots__ = ("power", "scale", "shift", "saturate", "quantize_method")
    class QuantizeMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        tflite: _ClassVar[PowerParameter.QuantizeMethod]
        ONNX: _ClassVar[PowerParameter.QuantizeMethod]
        Caffe2: _ClassVar[PowerParameter.QuantizeMethod]
    tflite: PowerParameter.QuantizeMethod
    ONNX: PowerParameter.QuantizeMethod
    Caffe2: PowerParameter.QuantizeMethod
    class SaturateMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        Signed: _ClassVar[PowerParameter.SaturateMethod]
        Unsigned: _ClassVar[PowerParameter.SaturateMethod]
        Signed_8bit: _ClassVar[PowerParameter.SaturateMethod]
        Unsigned_8bit: _ClassVar[PowerParameter.SaturateMethod]
    Signed: PowerParameter.SaturateMethod
    Unsigned: PowerParameter.SaturateMethod
    Signed_8bit: PowerParameter.SaturateMethod
    Unsigned_8bit: PowerParameter.SaturateMethod
    POWER_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    SHIFT_FIELD_NUMBER: _ClassVar[int]
    SATURATE_FIELD_NUMBER: _ClassVar[int]
    QUANTIZE_METHOD_FIELD_NUMBER: _ClassVar[int]
    power: float
    scale: float
    shift: float
    saturate: PowerParameter.SaturateMethod
    quantize_method: PowerParameter.QuantizeMethod
    def __init__(self, power: _Optional[float] = ..., scale: _Optional[float] = ..., shift: _Optional[float] = ..., saturate: _Optional[_Union[PowerParameter.SaturateMethod, str]] = ..., quantize_method: _Optional[_Union[PowerParameter.QuantizeMethod, str]] = ...) -> None: ...

class PythonParameter(_message.Message):
    __slots__ = ("module", "layer", "param_str", "share_in_parallel")
    MODULE_FIELD_NUMBER: _ClassVar[int]
    LAYER_FIELD_NUMBER: _ClassVar[int]
    PARAM_STR_FIELD_NUMBER: _ClassVar[int]
    SHARE_IN_PARALLEL_FIELD_NUMBER: _ClassVar[int]
    module: str
    layer: str
    param_str: str
    share_in_parallel: bool
    def __init__(self, module: _Optional[str] = ..., layer: _Optional[str] = ..., param_str: _Optional[str] = ..., share_in_parallel: _Optional[bool] = ...) -> None: ...

class RecurrentParameter(_message.Message):
    __slots__ = ("num_output", "weight_filler", "bias_filler", "debug_info", "expose_hidden", "tf_rnn", "linear_before_reset", "direction", "activation_alpha", "activation_beta", "activations", "default_initial", "continue_recur", "engine", "expose_hidden_input", "expose_hidden_output", "dropout_ratio", "dropout_seed", "num_layers", "bidirectional", "cudnn_enable_tensor_cores", "batch_first", "auto_repeat_hidden_states_across_layers", "use_cudnn_rnn8_if_supported")
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    DEBUG_INFO_FIELD_NUMBER: _ClassVar[int]
    EXPOSE_HIDDEN_FIELD_NUMBER: _ClassVar[int]
    TF_RNN_FIELD_NUMBER: _ClassVar[int]
    LINEAR_BEFORE_RESET_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    ACTIVATION_ALPHA_FIELD_NUMBER: _ClassVar[int]
    ACTIVATION_BETA_FIELD_NUMBER: _ClassVar[int]
    ACTIVATIONS_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_INITIAL_FIELD_NUMBER: _ClassVar[int]
    CONTINUE_RECUR_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    EXPOSE_HIDDEN_INPUT_FIELD_NUMBER: _ClassVar[int]
    EXPOSE_HIDDEN_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    DROPOUT_RATIO_FIELD_NUMBER: _ClassVar[int]
    DROPOUT_SEED_FIELD_NUMBER: _ClassVar[int]
    NUM_LAYERS_FIELD_NUMBER: _ClassVar[int]
    BIDIRECTIONAL_FIELD_NUMBER: _ClassVar[int]
    CUDNN_ENABLE_TENSOR_CORES_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIRST_FIELD_NUMBER: _ClassVar[int]
    AUTO_REPEAT_HIDDEN_STATES_ACROSS_LAYERS_FIELD_NUMBER: _ClassVar[int]
    USE_CUDNN_RNN8_IF_SUPPORTED_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    weight_filler: FillerParameter
    bias_filler: FillerParameter
    debug_info: bool
    expose_hidden: bool
    tf_rnn: bool
    linear_before_reset: int
    direction: str
    activation_alpha: _containers.RepeatedScalarFieldContainer[float]
    activation_beta: _containers.RepeatedScalarFieldContainer[float]
    activations: _containers.RepeatedScalarFieldContainer[str]
    default_initial: bool
    continue_recur: bool
    engine: str
    expose_hidden_input: bool
    expose_hidden_output: bool
    dropout_ratio: float
    dropout_seed: int
    num_layers: int
    bidirectional: bool
    cudnn_enable_tensor_cores: bool
    batch_first: bool
    auto_repeat_hidden_states_across_layers: bool
    use_cudnn_rnn8_if_supported: bool
    def __init__(self, num_output: _Optional[int] = ..., weight_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., debug_info: _Optional[bool] = ..., expose_hidden: _Optional[bool] = ..., tf_rnn: _Optional[bool] = ..., linear_before_reset: _Optional[int] = ..., direction: _Optional[str] = ..., activation_alpha: _Optional[_Iterable[float]] = ..., activation_beta: _Optional[_Iterable[float]] = ..., activations: _Optional[_Iterable[str]] = ..., default_initial: _Optional[bool] = ..., continue_recur: _Optional[bool] = ..., engine: _Optional[str] = ..., expose_hidden_input: _Optional[bool] = ..., expose_hidden_output: _Optional[bool] = ..., dropout_ratio: _Optional[float] = ..., dropout_seed: _Optional[int] = ..., num_layers: _Optional[int] = ..., bidirectional: _Optional[bool] = ..., cudnn_enable_tensor_cores: _Optional[bool] = ..., batch_first: _Optional[bool] = ..., auto_repeat_hidden_states_across_layers: _Optional[bool] = ..., use_cudnn_rnn8_if_supported: _Optional[bool] = ...) -> None: ...

class ReductionParameter(_message.Message):
    __slots__ = ("operation", "axis", "coeff", "k")
    class ReductionOp(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SUM: _ClassVar[ReductionParameter.ReductionOp]
        ASUM: _ClassVar[ReductionParameter.ReductionOp]
        SUMSQ: _ClassVar[ReductionParameter.ReductionOp]
        MEAN: _ClassVar[ReductionParameter.ReductionOp]
        TOPK: _ClassVar[ReductionParameter.ReductionOp]
    SUM: ReductionParameter.ReductionOp
    ASUM: ReductionParameter.ReductionOp
    SUMSQ: ReductionParameter.ReductionOp
    MEAN: ReductionParameter.ReductionOp
    TOPK: ReductionParameter.ReductionOp
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    COEFF_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    operation: ReductionParameter.ReductionOp
    axis: int
    coeff: float
    k: int
    def __init__(self, operation: _Optional[_Union[ReductionParameter.ReductionOp, str]] = ..., axis: _Optional[int] = ..., coeff: _Optional[float] = ..., k: _Optional[int] = ...) -> None: ...

class ReLUParameter(_message.Message):
    __slots__ = ("negative_slope", "engine", "fuse", "saturate", "maximum", "minimum", "input_scale", "output_scale", "input_zero_point", "output_zero_point", "relu6")
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[ReLUParameter.Engine]
        CAFFE: _ClassVar[ReLUParameter.Engine]
        CUDNN: _ClassVar[ReLUParameter.Engine]
        MKL2017: _ClassVar[ReLUParameter.Engine]
        MKLDNN: _ClassVar[ReLUParameter.Engine]
    DEFAULT: ReLUParameter.Engine
    CAFFE: ReLUParameter.Engine
    CUDNN: ReLUParameter.Engine
    MKL2017: ReLUParameter.Engine
    MKLDNN: ReLUParameter.Engine
    class SaturateMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        Signed: _ClassVar[ReLUParameter.SaturateMethod]
        Unsigned: _ClassVar[ReLUParameter.SaturateMethod]
        Signed_8bit: _ClassVar[ReLUParameter.SaturateMethod]
        Unsigned_8bit: _ClassVar[ReLUParameter.SaturateMethod]
    Signed: ReLUParameter.SaturateMethod
    Unsigned: ReLUParameter.SaturateMethod
    Signed_8bit: ReLUParameter.SaturateMethod
    Unsigned_8bit: ReLUParameter.SaturateMethod
    NEGATIVE_SLOPE_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    FUSE_FIELD_NUMBER: _ClassVar[int]
    SATURATE_FIELD_NUMBER: _ClassVar[int]
    MAXIMUM_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_FIELD_NUMBER: _ClassVar[int]
    INPUT_SCALE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCALE_FIELD_NUMBER: _ClassVar[int]
    INPUT_ZERO_POINT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_ZERO_POINT_FIELD_NUMBER: _ClassVar[int]
    RELU6_FIELD_NUMBER: _ClassVar[int]
    negative_slope: float
    engine: ReLUParameter.Engine
    fuse: bool
    saturate: ReLUParameter.SaturateMethod
    maximum: float
    minimum: float
    input_scale: float
    output_scale: float
    input_zero_point: int
    output_zero_point: int
    relu6: bool
    def __init__(self, negative_slope: _Optional[float] = ..., engine: _Optional[_Union[ReLUParameter.Engine, str]] = ..., fuse: _Optional[bool] = ..., saturate: _Optional[_Union[ReLUParameter.SaturateMethod, str]] = ..., maximum: _Optional[float] = ..., minimum: _Optional[float] = ..., input_scale: _Optional[float] = ..., output_scale: _Optional[float] = ..., input_zero_point: _Optional[int] = ..., output_zero_point: _Optional[int] = ..., relu6: _Optional[bool] = ...) -> None: ...

class ReshapeParameter(_message.Message):
    __slots__ = ("shape", "axis", "num_axes", "pixelshuffler")
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    NUM_AXES_FIELD_NUMBER: _ClassVar[int]
    PIXELSHUFFLER_FIELD_NUMBER: _ClassVar[int]
    shape: BlobShape
    axis: int
    num_axes: int
    pixelshuffler: int
    def __init__(self, shape: _Optional[_Union[BlobShape, _Mapping]] = ..., axis: _Optional[int] = ..., num_axes: _Optional[int] = ..., pixelshuffler: _Optional[int] = ...) -> None: ...

class ScaleParameter(_message.Message):
    __slots__ = ("axis", "num_axes", "filler", "bias_term", "bias_filler", "dis_mode", "gen_mode", "max_value", "min_value", "match_by_count")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    NUM_AXES_FIELD_NUMBER: _ClassVar[int]
    FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_TERM_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    DIS_MODE_FIELD_NUMBER: _ClassVar[int]
    GEN_MODE_FIELD_NUMBER: _ClassVar[int]
    MAX_VALUE_FIELD_NUMBER: _ClassVar[int]
    MIN_VALUE_FIELD_NUMBER: _ClassVar[int]
    MATCH_BY_COUNT_FIELD_NUMBER: _ClassVar[int]
    axis: int
    num_axes: int
    filler: FillerParameter
    bias_term: bool
    bias_filler: FillerParameter
    dis_mode: bool
    gen_mode: bool
    max_value: float
    min_value: float
    match_by_count: bool
    def __init__(self, axis: _Optional[int] = ..., num_axes: _Optional[int] = ..., filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_term: _Optional[bool] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., dis_mode: _Optional[bool] = ..., gen_mode: _Optional[bool] = ..., max_value: _Optional[float] = ..., min_value: _Optional[float] = ..., match_by_count: _Optional[bool] = ...) -> None: ...

class SigmoidParameter(_message.Message):
    __slots__ = ("engine", "input_scale", "output_scale", "input_zero_point", "output_zero_point", "saturate")
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[SigmoidParameter.Engine]
        CAFFE: _ClassVar[SigmoidParameter.Engine]
        CUDNN: _ClassVar[SigmoidParameter.Engine]
    DEFAULT: SigmoidParameter.Engine
    CAFFE: SigmoidParameter.Engine
    CUDNN: SigmoidParameter.Engine
    class SaturateMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        Signed: _ClassVar[SigmoidParameter.SaturateMethod]
        Unsigned: _ClassVar[SigmoidParameter.SaturateMethod]
        Signed_8bit: _ClassVar[SigmoidParameter.SaturateMethod]
        Unsigned_8bit: _ClassVar[SigmoidParameter.SaturateMethod]
    Signed: SigmoidParameter.SaturateMethod
    Unsigned: SigmoidParameter.SaturateMethod
    Signed_8bit: SigmoidParameter.SaturateMethod
    Unsigned_8bit: SigmoidParameter.SaturateMethod
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    INPUT_SCALE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCALE_FIELD_NUMBER: _ClassVar[int]
    INPUT_ZERO_POINT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_ZERO_POINT_FIELD_NUMBER: _ClassVar[int]
    SATURATE_FIELD_NUMBER: _ClassVar[int]
    engine: SigmoidParameter.Engine
    input_scale: float
    output_scale: float
    input_zero_point: int
    output_zero_point: int
    saturate: SigmoidParameter.SaturateMethod
    def __init__(self, engine: _Optional[_Union[SigmoidParameter.Engine, str]] = ..., input_scale: _Optional[float] = ..., output_scale: _Optional[float] = ..., input_zero_point: _Optional[int] = ..., output_zero_point: _Optional[int] = ..., saturate: _Optional[_Union[SigmoidParameter.SaturateMethod, str]] = ...) -> None: ...

class SliceParameter(_message.Message):
    __slots__ = ("axis", "slice_point", "slice_dim")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    SLICE_POINT_FIELD_NUMBER: _ClassVar[int]
    SLICE_DIM_FIELD_NUMBER: _ClassVar[int]
    axis: int
    slice_point: _containers.RepeatedScalarFieldContainer[int]
    slice_dim: int
    def __init__(self, axis: _Optional[int] = ..., slice_point: _Optional[_Iterable[int]] = ..., slice_dim: _Optional[int] = ...) -> None: ...

class SoftmaxParameter(_message.Message):
    __slots__ = ("engine", "axis", "hard_ratio", "class_weight", "hard_mining_label", "cutting_point", "normalize_type", "label_smooth_factor", "input_scale", "input_zero_point", "output_scale", "output_zero_point", "saturate", "temperature", "dimension", "algorithm", "algorithm_train")
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[SoftmaxParameter.Engine]
        CAFFE: _ClassVar[SoftmaxParameter.Engine]
        CUDNN: _ClassVar[SoftmaxParameter.Engine]
    DEFAULT: SoftmaxParameter.Engine
    CAFFE: SoftmaxParameter.Engine
    CUDNN: SoftmaxParameter.Engine
    class SaturateMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        Signed: _ClassVar[SoftmaxParameter.SaturateMethod]
        Unsigned: _ClassVar[SoftmaxParameter.SaturateMethod]
        Signed_8bit: _ClassVar[SoftmaxParameter.SaturateMethod]
        Unsigned_8bit: _ClassVar[SoftmaxParameter.SaturateMethod]
    Signed: SoftmaxParameter.SaturateMethod
    Unsigned: SoftmaxParameter.SaturateMethod
    Signed_8bit: SoftmaxParameter.SaturateMethod
    Unsigned_8bit: SoftmaxParameter.SaturateMethod
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    HARD_RATIO_FIELD_NUMBER: _ClassVar[int]
    CLASS_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    HARD_MINING_LABEL_FIELD_NUMBER: _ClassVar[int]
    CUTTING_POINT_FIELD_NUMBER: _ClassVar[int]
    NORMALIZE_TYPE_FIELD_NUMBER: _ClassVar[int]
    LABEL_SMOOTH_FACTOR_FIELD_NUMBER: _ClassVar[int]
    INPUT_SCALE_FIELD_NUMBER: _ClassVar[int]
    INPUT_ZERO_POINT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCALE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_ZERO_POINT_FIELD_NUMBER: _ClassVar[int]
    SATURATE_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    DIMENSION_FIELD_NUMBER: _ClassVar[int]
    ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    ALGORITHM_TRAIN_FIELD_NUMBER: _ClassVar[int]
    engine: SoftmaxParameter.Engine
    axis: int
    hard_ratio: float
    class_weight: _containers.RepeatedScalarFieldContainer[float]
    hard_mining_label: int
    cutting_point: float
    normalize_type: str
    label_smooth_factor: float
    input_scale: float
    input_zero_point: int
    output_scale: float
    output_zero_point: int
    saturate: SoftmaxParameter.SaturateMethod
    temperature: float
    dimension: str
    algorithm: str
    algorithm_train: str
    def __init__(self, engine: _Optional[_Union[SoftmaxParameter.Engine, str]] = ..., axis: _Optional[int] = ..., hard_ratio: _Optional[float] = ..., class_weight: _Optional[_Iterable[float]] = ..., hard_mining_label: _Optional[int] = ..., cutting_point: _Optional[float] = ..., normalize_type: _Optional[str] = ..., label_smooth_factor: _Optional[float] = ..., input_scale: _Optional[float] = ..., input_zero_point: _Optional[int] = ..., output_scale: _Optional[float] = ..., output_zero_point: _Optional[int] = ..., saturate: _Optional[_Union[SoftmaxParameter.SaturateMethod, str]] = ..., temperature: _Optional[float] = ..., dimension: _Optional[str] = ..., algorithm: _Optional[str] = ..., algorithm_train: _Optional[str] = ...) -> None: ...

class SwishParameter(_message.Message):
    __slots__ = ("beta",)
    BETA_FIELD_NUMBER: _ClassVar[int]
    beta: float
    def __init__(self, beta: _Optional[float] = ...) -> None: ...

class TanHParameter(_message.Message):
    __slots__ = ("engine",)
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[TanHParameter.Engine]
        CAFFE: _ClassVar[TanHParameter.Engine]
        CUDNN: _ClassVar[TanHParameter.Engine]
    DEFAULT: TanHParameter.Engine
    CAFFE: TanHParameter.Engine
    CUDNN: TanHParameter.Engine
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    engine: TanHParameter.Engine
    def __init__(self, engine: _Optional[_Union[TanHParameter.Engine, str]] = ...) -> None: ...

class TileParameter(_message.Message):
    __slots__ = ("axis", "tiles")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    TILES_FIELD_NUMBER: _ClassVar[int]
    axis: int
    tiles: int
    def __init__(self, axis: _Optional[int] = ..., tiles: _Optional[int] = ...) -> None: ...

class ThresholdParameter(_message.Message):
    __slots__ = ("threshold",)
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    threshold: float
    def __init__(self, threshold: _Optional[float] = ...) -> None: ...

class WindowDataParameter(_message.Message):
    __slots__ = ("source", "scale", "mean_file", "batch_size", "crop_size", "mirror", "fg_threshold", "bg_threshold", "fg_fraction", "context_pad", "crop_mode", "cache_images", "root_folder", "config")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    MEAN_FILE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    CROP_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    FG_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    BG_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    FG_FRACTION_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_PAD_FIELD_NUMBER: _ClassVar[int]
    CROP_MODE_FIELD_NUMBER: _ClassVar[int]
    CACHE_IMAGES_FIELD_NUMBER: _ClassVar[int]
    ROOT_FOLDER_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    source: str
    scale: float
    mean_file: str
    batch_size: int
    crop_size: int
    mirror: bool
    fg_threshold: float
    bg_threshold: float
    fg_fraction: float
    context_pad: int
    crop_mode: str
    cache_images: bool
    root_folder: str
    config: str
    def __init__(self, source: _Optional[str] = ..., scale: _Optional[float] = ..., mean_file: _Optional[str] = ..., batch_size: _Optional[int] = ..., crop_size: _Optional[int] = ..., mirror: _Optional[bool] = ..., fg_threshold: _Optional[float] = ..., bg_threshold: _Optional[float] = ..., fg_fraction: _Optional[float] = ..., context_pad: _Optional[int] = ..., crop_mode: _Optional[str] = ..., cache_images: _Optional[bool] = ..., root_folder: _Optional[str] = ..., config: _Optional[str] = ...) -> None: ...

class SPPParameter(_message.Message):
    __slots__ = ("pyramid_height", "pool", "engine")
    class PoolMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MAX: _ClassVar[SPPParameter.PoolMethod]
        AVE: _ClassVar[SPPParameter.PoolMethod]
        STOCHASTIC: _ClassVar[SPPParameter.PoolMethod]
        AVE_EXC_PAD: _ClassVar[SPPParameter.PoolMethod]
        AVE_TF: _ClassVar[SPPParameter.PoolMethod]
    MAX: SPPParameter.PoolMethod
    AVE: SPPParameter.PoolMethod
    STOCHASTIC: SPPParameter.PoolMethod
    AVE_EXC_PAD: SPPParameter.PoolMethod
    AVE_TF: SPPParameter.PoolMethod
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[SPPParameter.Engine]
        CAFFE: _ClassVar[SPPParameter.Engine]
        CUDNN: _ClassVar[SPPParameter.Engine]
    DEFAULT: SPPParameter.Engine
    CAFFE: SPPParameter.Engine
    CUDNN: SPPParameter.Engine
    PYRAMID_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    pyramid_height: int
    pool: SPPParameter.PoolMethod
    engine: SPPParameter.Engine
    def __init__(self, pyramid_height: _Optional[int] = ..., pool: _Optional[_Union[SPPParameter.PoolMethod, str]] = ..., engine: _Optional[_Union[SPPParameter.Engine, str]] = ...) -> None: ...

class V1LayerParameter(_message.Message):
    __slots__ = ("bottom", "top", "name", "include", "exclude", "type", "blobs", "param", "blob_share_mode", "blobs_lr", "weight_decay", "loss_weight", "accuracy_param", "argmax_param", "concat_param", "contrastive_loss_param", "convolution_param", "data_param", "dropout_param", "dummy_data_param", "eltwise_param", "exp_param", "hdf5_data_param", "hdf5_output_param", "hinge_loss_param", "image_data_param", "infogain_loss_param", "inner_product_param", "lrn_param", "memory_data_param", "mvn_param", "pooling_param", "power_param", "relu_param", "sigmoid_param", "softmax_param", "slice_param", "tanh_param", "threshold_param", "window_data_param", "transform_param", "loss_param", "layer", "bn_param", "local_param", "prelu_param", "insanity_param", "triplet_loss_param", "roi_pooling_param", "eltwise_affine_param", "sub_region_param", "noise_param", "relu6_param", "yolo_v2_loss_param", "yolo_v3_loss_param", "interp_param", "mat_write_param", "multi_stage_meanfield_param", "padding_param", "seg_accuracy_param", "softmaxloss_param", "strict_dim", "unpooling_param", "spatial_softmax_param", "eltwise_accuracy_param")
    class LayerType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NONE: _ClassVar[V1LayerParameter.LayerType]
        ABSVAL: _ClassVar[V1LayerParameter.LayerType]
        ACCURACY: _ClassVar[V1LayerParameter.LayerType]
        ARGMAX: _ClassVar[V1LayerParameter.LayerType]
        BNLL: _ClassVar[V1LayerParameter.LayerType]
        CONCAT: _ClassVar[V1LayerParameter.LayerType]
        CONTRASTIVE_LOSS: _ClassVar[V1LayerParameter.LayerType]
        CONVOLUTION: _ClassVar[V1LayerParameter.LayerType]
        DATA: _ClassVar[V1LayerParameter.LayerType]
        DECONVOLUTION: _ClassVar[V1LayerParameter.LayerType]
        DROPOUT: _ClassVar[V1LayerParameter.LayerType]
        DUMMY_DATA: _ClassVar[V1LayerParameter.LayerType]
        EUCLIDEAN_LOSS: _ClassVar[V1LayerParameter.LayerType]
        ELTWISE: _ClassVar[V1LayerParameter.LayerType]
        EXP: _ClassVar[V1LayerParameter.LayerType]
        FLATTEN: _ClassVar[V1LayerParameter.LayerType]
        HDF5_DATA: _ClassVar[V1LayerParameter.LayerType]
        HDF5_OUTPUT: _ClassVar[V1LayerParameter.LayerType]
        HINGE_LOSS: _ClassVar[V1LayerParameter.LayerType]
        IM2COL: _ClassVar[V1LayerParameter.LayerType]
        IMAGE_DATA: _ClassVar[V1LayerParameter.LayerType]
        INFOGAIN_LOSS: _ClassVar[V1LayerParameter.LayerType]
        INNER_PRODUCT: _ClassVar[V1LayerParameter.LayerType]
        LRN: _ClassVar[V1LayerParameter.LayerType]
        MEMORY_DATA: _ClassVar[V1LayerParameter.LayerType]
        MULTINOMIAL_LOGISTIC_LOSS: _ClassVar[V1LayerParameter.LayerType]
        MVN: _ClassVar[V1LayerParameter.LayerType]
        POOLING: _ClassVar[V1LayerParameter.LayerType]
        POWER: _ClassVar[V1LayerParameter.LayerType]
        RELU: _ClassVar[V1LayerParameter.LayerType]
        SIGMOID: _ClassVar[V1LayerParameter.LayerType]
        SIGMOID_CROSS_ENTROPY_LOSS: _ClassVar[V1LayerParameter.LayerType]
        SILENCE: _ClassVar[V1LayerParameter.LayerType]
        SOFTMAX: _ClassVar[V1LayerParameter.LayerType]
        SOFTMAX_LOSS: _ClassVar[V1LayerParameter.LayerType]
        SPLIT: _ClassVar[V1LayerParameter.LayerType]
        SLICE: _ClassVar[V1LayerParameter.LayerType]
        TANH: _ClassVar[V1LayerParameter.LayerType]
        WINDOW_DATA: _ClassVar[V1LayerParameter.LayerType]
        THRESHOLD: _ClassVar[V1LayerParameter.LayerType]
        LOCAL: _ClassVar[V1LayerParameter.LayerType]
        BN: _ClassVar[V1LayerParameter.LayerType]
        NORMALIZE: _ClassVar[V1LayerParameter.LayerType]
        INSANITY: _ClassVar[V1LayerParameter.LayerType]
        TRIPLET_LOSS: _ClassVar[V1LayerParameter.LayerType]
        ROIPOOLING: _ClassVar[V1LayerParameter.LayerType]
        BATCH_NORM: _ClassVar[V1LayerParameter.LayerType]
        ELTWISE_AFFINE: _ClassVar[V1LayerParameter.LayerType]
        RELU6: _ClassVar[V1LayerParameter.LayerType]
        CONVOLUTION3D: _ClassVar[V1LayerParameter.LayerType]
        CROP: _ClassVar[V1LayerParameter.LayerType]
        DECONVOLUTION3D: _ClassVar[V1LayerParameter.LayerType]
        ELTWISE_ACCURACY: _ClassVar[V1LayerParameter.LayerType]
        EUCLIDEAN_DISTANCE: _ClassVar[V1LayerParameter.LayerType]
        IMAGE_SEG_DATA: _ClassVar[V1LayerParameter.LayerType]
        INTERP: _ClassVar[V1LayerParameter.LayerType]
        MAT_WRITE: _ClassVar[V1LayerParameter.LayerType]
        MULTI_STAGE_MEANFIELD: _ClassVar[V1LayerParameter.LayerType]
        PADDING: _ClassVar[V1LayerParameter.LayerType]
        POOLING3D: _ClassVar[V1LayerParameter.LayerType]
        SEG_ACCURACY: _ClassVar[V1LayerParameter.LayerType]
        SPATIAL_SOFTMAX: _ClassVar[V1LayerParameter.LayerType]
        UNPOOLING: _ClassVar[V1LayerParameter.LayerType]
        VIDEO_DATA: _ClassVar[V1LayerParameter.LayerType]
        VIDEO_SEGMENTATION_DATA: _ClassVar[V1LayerParameter.LayerType]
        VIDEO_WITH_VOXEL_TRUTH_DATA: _ClassVar[V1LayerParameter.LayerType]
        VOXEL_SOFTMAX: _ClassVar[V1LayerParameter.LayerType]
        VOXEL_SOFTMAX_LOSS: _ClassVar[V1LayerParameter.LayerType]
        WEIGHTED_EUCLIDEAN_LOSS: _ClassVar[V1LayerParameter.LayerType]
        WINDOW_SEG_DATA: _ClassVar[V1LayerParameter.LayerType]
    NONE: V1LayerParameter.LayerType
    ABSVAL: V1LayerParameter.LayerType
    ACCURACY: V1LayerParameter.LayerType
    ARGMAX: V1LayerParameter.LayerType
    BNLL: V1LayerParameter.LayerType
    CONCAT: V1LayerParameter.LayerType
    CONTRASTIVE_LOSS: V1LayerParameter.LayerType
    CONVOLUTION: V1LayerParameter.LayerType
    DATA: V1LayerParameter.LayerType
    DECONVOLUTION: V1LayerParameter.LayerType
    DROPOUT: V1LayerParameter.LayerType
    DUMMY_DATA: V1LayerParameter.LayerType
    EUCLIDEAN_LOSS: V1LayerParameter.LayerType
    ELTWISE: V1LayerParameter.LayerType
    EXP: V1LayerParameter.LayerType
    FLATTEN: V1LayerParameter.LayerType
    HDF5_DATA: V1LayerParameter.LayerType
    HDF5_OUTPUT: V1LayerParameter.LayerType
    HINGE_LOSS: V1LayerParameter.LayerType
    IM2COL: V1LayerParameter.LayerType
    IMAGE_DATA: V1LayerParameter.LayerType
    INFOGAIN_LOSS: V1LayerParameter.LayerType
    INNER_PRODUCT: V1LayerParameter.LayerType
    LRN: V1LayerParameter.LayerType
    MEMORY_DATA: V1LayerParameter.LayerType
    MULTINOMIAL_LOGISTIC_LOSS: V1LayerParameter.LayerType
    MVN: V1LayerParameter.LayerType
    POOLING: V1LayerParameter.LayerType
    POWER: V1LayerParameter.LayerType
    RELU: V1LayerParameter.LayerType
    SIGMOID: V1LayerParameter.LayerType
    SIGMOID_CROSS_ENTROPY_LOSS: V1LayerParameter.LayerType
    SILENCE: V1LayerParameter.LayerType
    SOFTMAX: V1LayerParameter.LayerType
    SOFTMAX_LOSS: V1LayerParameter.LayerType
    SPLIT: V1LayerParameter.LayerType
    SLICE: V1LayerParameter.LayerType
    TANH: V1LayerParameter.LayerType
    WINDOW_DATA: V1LayerParameter.LayerType
    THRESHOLD: V1LayerParameter.LayerType
    LOCAL: V1LayerParameter.LayerType
    BN: V1LayerParameter.LayerType
    NORMALIZE: V1LayerParameter.LayerType
    INSANITY: V1LayerParameter.LayerType
    TRIPLET_LOSS: V1LayerParameter.LayerType
    ROIPOOLING: V1LayerParameter.LayerType
    BATCH_NORM: V1LayerParameter.LayerType
    ELTWISE_AFFINE: V1LayerParameter.LayerType
    RELU6: V1LayerParameter.LayerType
    CONVOLUTION3D: V1LayerParameter.LayerType
    CROP: V1LayerParameter.LayerType
    DECONVOLUTION3D: V1LayerParameter.LayerType
    ELTWISE_ACCURACY: V1LayerParameter.LayerType
    EUCLIDEAN_DISTANCE: V1LayerParameter.LayerType
    IMAGE_SEG_DATA: V1LayerParameter.LayerType
    INTERP: V1LayerParameter.LayerType
    MAT_WRITE: V1LayerParameter.LayerType
    MULTI_STAGE_MEANFIELD: V1LayerParameter.LayerType
    PADDING: V1LayerParameter.LayerType
    POOLING3D: V1LayerParameter.LayerType
    SEG_ACCURACY: V1LayerParameter.LayerType
    SPATIAL_SOFTMAX: V1LayerParameter.LayerType
    UNPOOLING: V1LayerParameter.LayerType
    VIDEO_DATA: V1LayerParameter.LayerType
    VIDEO_SEGMENTATION_DATA: V1LayerParameter.LayerType
    VIDEO_WITH_VOXEL_TRUTH_DATA: V1LayerParameter.LayerType
    VOXEL_SOFTMAX: V1LayerParameter.LayerType
    VOXEL_SOFTMAX_LOSS: V1LayerParameter.LayerType
    WEIGHTED_EUCLIDEAN_LOSS: V1LayerParameter.LayerType
    WINDOW_SEG_DATA: V1LayerParameter.LayerType
    class DimCheckMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STRICT: _ClassVar[V1LayerParameter.DimCheckMode]
        PERMISSIVE: _ClassVar[V1LayerParameter.DimCheckMode]
    STRICT: V1LayerParameter.DimCheckMode
    PERMISSIVE: V1LayerParameter.DimCheckMode
    BOTTOM_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    PARAM_FIELD_NUMBER: _ClassVar[int]
    BLOB_SHARE_MODE_FIELD_NUMBER: _ClassVar[int]
    BLOBS_LR_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DECAY_FIELD_NUMBER: _ClassVar[int]
    LOSS_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_PARAM_FIELD_NUMBER: _ClassVar[int]
    ARGMAX_PARAM_FIELD_NUMBER: _ClassVar[int]
    CONCAT_PARAM_FIELD_NUMBER: _ClassVar[int]
    CONTRASTIVE_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    CONVOLUTION_PARAM_FIELD_NUMBER: _ClassVar[int]
    DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    DROPOUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    DUMMY_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    ELTWISE_PARAM_FIELD_NUMBER: _ClassVar[int]
    EXP_PARAM_FIELD_NUMBER: _ClassVar[int]
    HDF5_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    HDF5_OUTPUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    HINGE_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    IMAGE_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    INFOGAIN_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    INNER_PRODUCT_PARAM_FIELD_NUMBER: _ClassVar[int]
    LRN_PARAM_FIELD_NUMBER: _ClassVar[int]
    MEMORY_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    MVN_PARAM_FIELD_NUMBER: _ClassVar[int]
    POOLING_PARAM_FIELD_NUMBER: _ClassVar[int]
    POWER_PARAM_FIELD_NUMBER: _ClassVar[int]
    RELU_PARAM_FIELD_NUMBER: _ClassVar[int]
    SIGMOID_PARAM_FIELD_NUMBER: _ClassVar[int]
    SOFTMAX_PARAM_FIELD_NUMBER: _ClassVar[int]
    SLICE_PARAM_FIELD_NUMBER: _ClassVar[int]
    TANH_PARAM_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_PARAM_FIELD_NUMBER: _ClassVar[int]
    WINDOW_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    TRANSFORM_PARAM_FIELD_NUMBER: _ClassVar[int]
    LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    LAYER_FIELD_NUMBER: _ClassVar[int]
    BN_PARAM_FIELD_NUMBER: _ClassVar[int]
    LOCAL_PARAM_FIELD_NUMBER: _ClassVar[int]
    PRELU_PARAM_FIELD_NUMBER: _ClassVar[int]
    INSANITY_PARAM_FIELD_NUMBER: _ClassVar[int]
    TRIPLET_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    ROI_POOLING_PARAM_FIELD_NUMBER: _ClassVar[int]
    ELTWISE_AFFINE_PARAM_FIELD_NUMBER: _ClassVar[int]
    SUB_REGION_PARAM_FIELD_NUMBER: _ClassVar[int]
    NOISE_PARAM_FIELD_NUMBER: _ClassVar[int]
    RELU6_PARAM_FIELD_NUMBER: _ClassVar[int]
    YOLO_V2_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    YOLO_V3_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    INTERP_PARAM_FIELD_NUMBER: _ClassVar[int]
    MAT_WRITE_PARAM_FIELD_NUMBER: _ClassVar[int]
    MULTI_STAGE_MEANFIELD_PARAM_FIELD_NUMBER: _ClassVar[int]
    PADDING_PARAM_FIELD_NUMBER: _ClassVar[int]
    SEG_ACCURACY_PARAM_FIELD_NUMBER: _ClassVar[int]
    SOFTMAXLOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    STRICT_DIM_FIELD_NUMBER: _ClassVar[int]
    UNPOOLING_PARAM_FIELD_NUMBER: _ClassVar[int]
    SPATIAL_SOFTMAX_PARAM_FIELD_NUMBER: _ClassVar[int]
    ELTWISE_ACCURACY_PARAM_FIELD_NUMBER: _ClassVar[int]
    bottom: _containers.RepeatedScalarFieldContainer[str]
    top: _containers.RepeatedScalarFieldContainer[str]
    name: str
    include: _containers.RepeatedCompositeFieldContainer[NetStateRule]
    exclude: _containers.RepeatedCompositeFieldContainer[NetStateRule]
    type: V1LayerParameter.LayerType
    blobs: _containers.RepeatedCompositeFieldContainer[BlobProto]
    param: _containers.RepeatedScalarFieldContainer[str]
    blob_share_mode: _containers.RepeatedScalarFieldContainer[V1LayerParameter.DimCheckMode]
    blobs_lr: _containers.RepeatedScalarFieldContainer[float]
    weight_decay: _containers.RepeatedScalarFieldContainer[float]
    loss_weight: _containers.RepeatedScalarFieldContainer[float]
    accuracy_param: AccuracyParameter
    argmax_param: ArgMaxParameter
    concat_param: ConcatParameter
    contrastive_loss_param: ContrastiveLossParameter
    convolution_param: ConvolutionParameter
    data_param: DataParameter
    dropout_param: DropoutParameter
    dummy_data_param: DummyDataParameter
    eltwise_param: EltwiseParameter
    exp_param: ExpParameter
    hdf5_data_param: HDF5DataParameter
    hdf5_output_param: HDF5OutputParameter
    hinge_loss_param: HingeLossParameter
    image_data_param: ImageDataParameter
    infogain_loss_param: InfogainLossParameter
    inner_product_param: InnerProductParameter
    lrn_param: LRNParameter
    memory_data_param: MemoryDataParameter
    mvn_param: MVNParameter
    pooling_param: PoolingParameter
    power_param: PowerParameter
    relu_param: ReLUParameter
    sigmoid_param: SigmoidParameter
    softmax_param: SoftmaxParameter
    slice_param: SliceParameter
    tanh_param: TanHParameter
    threshold_param: ThresholdParameter
    window_data_param: WindowDataParameter
    transform_param: TransformationParameter
    loss_param: LossParameter
    layer: V0LayerParameter
    bn_param: BNParameter
    local_param: LocalParameter
    prelu_param: PReLUParameter
    insanity_param: InsanityParameter
    triplet_loss_param: TripletLossParameter
    roi_pooling_param: ROIPoolingParameter
    eltwise_affine_param: EltwiseAffineParameter
    sub_region_param: SubRegionParameter
    noise_param: NoiseParameter
    relu6_param: ReLUParameter
    yolo_v2_loss_param: YoloV2LossParameter
    yolo_v3_loss_param: YoloV3LossParameter
    interp_param: InterpParameter
    mat_write_param: MatWriteParameter
    multi_stage_meanfield_param: MultiStageMeanfieldParameter
    padding_param: PaddingParameter
    seg_accuracy_param: SegAccuracyParameter
    softmaxloss_param: SoftmaxLossParameter
    strict_dim: bool
    unpooling_param: UnpoolingParameter
    spatial_softmax_param: SpatialSoftmaxParameter
    eltwise_accuracy_param: EltwiseAccuracyParameter
    def __init__(self, bottom: _Optional[_Iterable[str]] = ..., top: _Optional[_Iterable[str]] = ..., name: _Optional[str] = ..., include: _Optional[_Iterable[_Union[NetStateRule, _Mapping]]] = ..., exclude: _Optional[_Iterable[_Union[NetStateRule, _Mapping]]] = ..., type: _Optional[_Union[V1LayerParameter.LayerType, str]] = ..., blobs: _Optional[_Iterable[_Union[BlobProto, _Mapping]]] = ..., param: _Optional[_Iterable[str]] = ..., blob_share_mode: _Optional[_Iterable[_Union[V1LayerParameter.DimCheckMode, str]]] = ..., blobs_lr: _Optional[_Iterable[float]] = ..., weight_decay: _Optional[_Iterable[float]] = ..., loss_weight: _Optional[_Iterable[float]] = ..., accuracy_param: _Optional[_Union[AccuracyParameter, _Mapping]] = ..., argmax_param: _Optional[_Union[ArgMaxParameter, _Mapping]] = ..., concat_param: _Optional[_Union[ConcatParameter, _Mapping]] = ..., contrastive_loss_param: _Optional[_Union[ContrastiveLossParameter, _Mapping]] = ..., convolution_param: _Optional[_Union[ConvolutionParameter, _Mapping]] = ..., data_param: _Optional[_Union[DataParameter, _Mapping]] = ..., dropout_param: _Optional[_Union[DropoutParameter, _Mapping]] = ..., dummy_data_param: _Optional[_Union[DummyDataParameter, _Mapping]] = ..., eltwise_param: _Optional[_Union[EltwiseParameter, _Mapping]] = ..., exp_param: _Optional[_Union[ExpParameter, _Mapping]] = ..., hdf5_data_param: _Optional[_Union[HDF5DataParameter, _Mapping]] = ..., hdf5_output_param: _Optional[_Union[HDF5OutputParameter, _Mapping]] = ..., hinge_loss_param: _Optional[_Union[HingeLossParameter, _Mapping]] = ..., image_data_param: _Optional[_Union[ImageDataParameter, _Mapping]] = ..., infogain_loss_param: _Optional[_Union[InfogainLossParameter, _Mapping]] = ..., inner_product_param: _Optional[_Union[InnerProductParameter, _Mapping]] = ..., lrn_param: _Optional[_Union[LRNParameter, _Mapping]] = ..., memory_data_param: _Optional[_Union[MemoryDataParameter, _Mapping]] = ..., mvn_param: _Optional[_Union[MVNParameter, _Mapping]] = ..., pooling_param: _Optional[_Union[PoolingParameter, _Mapping]] = ..., power_param: _Optional[_Union[PowerParameter, _Mapping]] = ..., relu_param: _Optional[_Union[ReLUParameter, _Mapping]] = ..., sigmoid_param: _Optional[_Union[SigmoidParameter, _Mapping]] = ..., softmax_param: _Optional[_Union[SoftmaxParameter, _Mapping]] = ..., slice_param: _Optional[_Union[SliceParameter, _Mapping]] = ..., tanh_param: _Optional[_Union[TanHParameter, _Mapping]] = ..., threshold_param: _Optional[_Union[ThresholdParameter, _Mapping]] = ..., window_data_param: _Optional[_Union[WindowDataParameter, _Mapping]] = ..., transform_param: _Optional[_Union[TransformationParameter, _Mapping]] = ..., loss_param: _Optional[_Union[LossParameter, _Mapping]] = ..., layer: _Optional[_Union[V0LayerParameter, _Mapping]] = ..., bn_param: _Optional[_Union[BNParameter, _Mapping]] = ..., local_param: _Optional[_Union[LocalParameter, _Mapping]] = ..., prelu_param: _Optional[_Union[PReLUParameter, _Mapping]] = ..., insanity_param: _Optional[_Union[InsanityParameter, _Mapping]] = ..., triplet_loss_param: _Optional[_Union[TripletLossParameter, _Mapping]] = ..., roi_pooling_param: _Optional[_Union[ROIPoolingParameter, _Mapping]] = ..., eltwise_affine_param: _Optional[_Union[EltwiseAffineParameter, _Mapping]] = ..., sub_region_param: _Optional[_Union[SubRegionParameter, _Mapping]] = ..., noise_param: _Optional[_Union[NoiseParameter, _Mapping]] = ..., relu6_param: _Optional[_Union[ReLUParameter, _Mapping]] = ..., yolo_v2_loss_param: _Optional[_Union[YoloV2LossParameter, _Mapping]] = ..., yolo_v3_loss_param: _Optional[_Union[YoloV3LossParameter, _Mapping]] = ..., interp_param: _Optional[_Union[InterpParameter, _Mapping]] = ..., mat_write_param: _Optional[_Union[MatWriteParameter, _Mapping]] = ..., multi_stage_meanfield_param: _Optional[_Union[MultiStageMeanfieldParameter, _Mapping]] = ..., padding_param: _Optional[_Union[PaddingParameter, _Mapping]] = ..., seg_accuracy_param: _Optional[_Union[SegAccuracyParameter, _Mapping]] = ..., softmaxloss_param: _Optional[_Union[SoftmaxLossParameter, _Mapping]] = ..., strict_dim: _Optional[bool] = ..., unpooling_param: _Optional[_Union[UnpoolingParameter, _Mapping]] = ..., spatial_softmax_param: _Optional[_Union[SpatialSoftmaxParameter, _Mapping]] = ..., eltwise_accuracy_param: _Optional[_Union[EltwiseAccuracyParameter, _Mapping]] = ...) -> None: ...

class V0LayerParameter(_message.Message):
    __slots__ = ("name", "type", "num_output", "biasterm", "weight_filler", "bias_filler", "pad", "kernelsize", "group", "stride", "pool", "dropout_ratio", "local_size", "alpha", "beta", "k", "source", "scale", "meanfile", "batchsize", "cropsize", "mirror", "blobs", "blobs_lr", "weight_decay", "rand_skip", "det_fg_threshold", "det_bg_threshold", "det_fg_fraction", "det_context_pad", "det_crop_mode", "new_num", "new_channels", "new_height", "new_width", "shuffle_images", "concat_dim", "hdf5_output_param")
    class PoolMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MAX: _ClassVar[V0LayerParameter.PoolMethod]
        AVE: _ClassVar[V0LayerParameter.PoolMethod]
        STOCHASTIC: _ClassVar[V0LayerParameter.PoolMethod]
        AVE_EXC_PAD: _ClassVar[V0LayerParameter.PoolMethod]
        AVE_TF: _ClassVar[V0LayerParameter.PoolMethod]
    MAX: V0LayerParameter.PoolMethod
    AVE: V0LayerParameter.PoolMethod
    STOCHASTIC: V0LayerParameter.PoolMethod
    AVE_EXC_PAD: V0LayerParameter.PoolMethod
    AVE_TF: V0LayerParameter.PoolMethod
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    BIASTERM_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    PAD_FIELD_NUMBER: _ClassVar[int]
    KERNELSIZE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    DROPOUT_RATIO_FIELD_NUMBER: _ClassVar[int]
    LOCAL_SIZE_FIELD_NUMBER: _ClassVar[int]
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    BETA_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    MEANFILE_FIELD_NUMBER: _ClassVar[int]
    BATCHSIZE_FIELD_NUMBER: _ClassVar[int]
    CROPSIZE_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    BLOBS_LR_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DECAY_FIELD_NUMBER: _ClassVar[int]
    RAND_SKIP_FIELD_NUMBER: _ClassVar[int]
    DET_FG_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    DET_BG_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    DET_FG_FRACTION_FIELD_NUMBER: _ClassVar[int]
    DET_CONTEXT_PAD_FIELD_NUMBER: _ClassVar[int]
    DET_CROP_MODE_FIELD_NUMBER: _ClassVar[int]
    NEW_NUM_FIELD_NUMBER: _ClassVar[int]
    NEW_CHANNELS_FIELD_NUMBER: _ClassVar[int]
    NEW_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    NEW_WIDTH_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_IMAGES_FIELD_NUMBER: _ClassVar[int]
    CONCAT_DIM_FIELD_NUMBER: _ClassVar[int]
    HDF5_OUTPUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    num_output: int
    biasterm: bool
    weight_filler: FillerParameter
    bias_filler: FillerParameter
    pad: int
    kernelsize: int
    group: int
    stride: int
    pool: V0LayerParameter.PoolMethod
    dropout_ratio: float
    local_size: int
    alpha: float
    beta: float
    k: float
    source: str
    scale: float
    meanfile: str
    batchsize: int
    cropsize: int
    mirror: bool
    blobs: _containers.RepeatedCompositeFieldContainer[BlobProto]
    blobs_lr: _containers.RepeatedScalarFieldContainer[float]
    weight_decay: _containers.RepeatedScalarFieldContainer[float]
    rand_skip: int
    det_fg_threshold: float
    det_bg_threshold: float
    det_fg_fraction: float
    det_context_pad: int
    det_crop_mode: str
    new_num: int
    new_channels: int
    new_height: int
    new_width: int
    shuffle_images: bool
    concat_dim: int
    hdf5_output_param: HDF5OutputParameter
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., num_output: _Optional[int] = ..., biasterm: _Optional[bool] = ..., weight_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., pad: _Optional[int] = ..., kernelsize: _Optional[int] = ..., group: _Optional[int] = ..., stride: _Optional[int] = ..., pool: _Optional[_Union[V0LayerParameter.PoolMethod, str]] = ..., dropout_ratio: _Optional[float] = ..., local_size: _Optional[int] = ..., alpha: _Optional[float] = ..., beta: _Optional[float] = ..., k: _Optional[float] = ..., source: _Optional[str] = ..., scale: _Optional[float] = ..., meanfile: _Optional[str] = ..., batchsize: _Optional[int] = ..., cropsize: _Optional[int] = ..., mirror: _Optional[bool] = ..., blobs: _Optional[_Iterable[_Union[BlobProto, _Mapping]]] = ..., blobs_lr: _Optional[_Iterable[float]] = ..., weight_decay: _Optional[_Iterable[float]] = ..., rand_skip: _Optional[int] = ..., det_fg_threshold: _Optional[float] = ..., det_bg_threshold: _Optional[float] = ..., det_fg_fraction: _Optional[float] = ..., det_context_pad: _Optional[int] = ..., det_crop_mode: _Optional[str] = ..., new_num: _Optional[int] = ..., new_channels: _Optional[int] = ..., new_height: _Optional[int] = ..., new_width: _Optional[int] = ..., shuffle_images: _Optional[bool] = ..., concat_dim: _Optional[int] = ..., hdf5_output_param: _Optional[_Union[HDF5OutputParameter, _Mapping]] = ...) -> None: ...

class PReLUParameter(_message.Message):
    __slots__ = ("filler", "channel_shared")
    FILLER_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_SHARED_FIELD_NUMBER: _ClassVar[int]
    filler: FillerParameter
    channel_shared: bool
    def __init__(self, filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., channel_shared: _Optional[bool] = ...) -> None: ...

class AccumParameter(_message.Message):
    __slots__ = ("top_height", "top_width", "size_divisible_by", "have_reference")
    TOP_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    TOP_WIDTH_FIELD_NUMBER: _ClassVar[int]
    SIZE_DIVISIBLE_BY_FIELD_NUMBER: _ClassVar[int]
    HAVE_REFERENCE_FIELD_NUMBER: _ClassVar[int]
    top_height: int
    top_width: int
    size_divisible_by: int
    have_reference: bool
    def __init__(self, top_height: _Optional[int] = ..., top_width: _Optional[int] = ..., size_divisible_by: _Optional[int] = ..., have_reference: _Optional[bool] = ...) -> None: ...

class AdaptiveBiasChannelParameter(_message.Message):
    __slots__ = ("num_iter", "bg_portion", "fg_portion", "suppress_others", "margin_others")
    NUM_ITER_FIELD_NUMBER: _ClassVar[int]
    BG_PORTION_FIELD_NUMBER: _ClassVar[int]
    FG_PORTION_FIELD_NUMBER: _ClassVar[int]
    SUPPRESS_OTHERS_FIELD_NUMBER: _ClassVar[int]
    MARGIN_OTHERS_FIELD_NUMBER: _ClassVar[int]
    num_iter: int
    bg_portion: float
    fg_portion: float
    suppress_others: bool
    margin_others: float
    def __init__(self, num_iter: _Optional[int] = ..., bg_portion: _Optional[float] = ..., fg_portion: _Optional[float] = ..., suppress_others: _Optional[bool] = ..., margin_others: _Optional[float] = ...) -> None: ...

class AnnotatedDataParameter(_message.Message):
    __slots__ = ("batch_sampler", "label_map_file", "anno_type", "yolo_data_type", "yolo_data_jitter", "train_diffcult", "single_class", "seg_scales", "seg_resize_width", "seg_resize_height", "difficult_label_warmup")
    BATCH_SAMPLER_FIELD_NUMBER: _ClassVar[int]
    LABEL_MAP_FILE_FIELD_NUMBER: _ClassVar[int]
    ANNO_TYPE_FIELD_NUMBER: _ClassVar[int]
    YOLO_DATA_TYPE_FIELD_NUMBER: _ClassVar[int]
    YOLO_DATA_JITTER_FIELD_NUMBER: _ClassVar[int]
    TRAIN_DIFFCULT_FIELD_NUMBER: _ClassVar[int]
    SINGLE_CLASS_FIELD_NUMBER: _ClassVar[int]
    SEG_SCALES_FIELD_NUMBER: _ClassVar[int]
    SEG_RESIZE_WIDTH_FIELD_NUMBER: _ClassVar[int]
    SEG_RESIZE_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    DIFFICULT_LABEL_WARMUP_FIELD_NUMBER: _ClassVar[int]
    batch_sampler: _containers.RepeatedCompositeFieldContainer[BatchSampler]
    label_map_file: str
    anno_type: AnnotatedDatum.AnnotationType
    yolo_data_type: int
    yolo_data_jitter: float
    train_diffcult: bool
    single_class: bool
    seg_scales: int
    seg_resize_width: int
    seg_resize_height: int
    difficult_label_warmup: bool
    def __init__(self, batch_sampler: _Optional[_Iterable[_Union[BatchSampler, _Mapping]]] = ..., label_map_file: _Optional[str] = ..., anno_type: _Optional[_Union[AnnotatedDatum.AnnotationType, str]] = ..., yolo_data_type: _Optional[int] = ..., yolo_data_jitter: _Optional[float] = ..., train_diffcult: _Optional[bool] = ..., single_class: _Optional[bool] = ..., seg_scales: _Optional[int] = ..., seg_resize_width: _Optional[int] = ..., seg_resize_height: _Optional[int] = ..., difficult_label_warmup: _Optional[bool] = ...) -> None: ...

class AnnotatedDatum(_message.Message):
    __slots__ = ("datum", "type", "annotation_group", "record_id")
    class AnnotationType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        BBOX: _ClassVar[AnnotatedDatum.AnnotationType]
        BBOXandSeg: _ClassVar[AnnotatedDatum.AnnotationType]
        LANE: _ClassVar[AnnotatedDatum.AnnotationType]
        NONE: _ClassVar[AnnotatedDatum.AnnotationType]
    BBOX: AnnotatedDatum.AnnotationType
    BBOXandSeg: AnnotatedDatum.AnnotationType
    LANE: AnnotatedDatum.AnnotationType
    NONE: AnnotatedDatum.AnnotationType
    DATUM_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ANNOTATION_GROUP_FIELD_NUMBER: _ClassVar[int]
    RECORD_ID_FIELD_NUMBER: _ClassVar[int]
    datum: Datum
    type: AnnotatedDatum.AnnotationType
    annotation_group: _containers.RepeatedCompositeFieldContainer[AnnotationGroup]
    record_id: int
    def __init__(self, datum: _Optional[_Union[Datum, _Mapping]] = ..., type: _Optional[_Union[AnnotatedDatum.AnnotationType, str]] = ..., annotation_group: _Optional[_Iterable[_Union[AnnotationGroup, _Mapping]]] = ..., record_id: _Optional[int] = ...) -> None: ...

class Annotation(_message.Message):
    __slots__ = ("instance_id", "bbox", "lanes")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    BBOX_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    instance_id: int
    bbox: NormalizedBBox
    lanes: LaneInfo
    def __init__(self, instance_id: _Optional[int] = ..., bbox: _Optional[_Union[NormalizedBBox, _Mapping]] = ..., lanes: _Optional[_Union[LaneInfo, _Mapping]] = ...) -> None: ...

class AnnotationGroup(_message.Message):
    __slots__ = ("group_label", "annotation")
    GROUP_LABEL_FIELD_NUMBER: _ClassVar[int]
    ANNOTATION_FIELD_NUMBER: _ClassVar[int]
    group_label: int
    annotation: _containers.RepeatedCompositeFieldContainer[Annotation]
    def __init__(self, group_label: _Optional[int] = ..., annotation: _Optional[_Iterable[_Union[Annotation, _Mapping]]] = ...) -> None: ...

class AttentionParameter(_message.Message):
    __slots__ = ("batch_size", "query_depth", "alignments_size", "scale", "normalize", "attention_option")
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    QUERY_DEPTH_FIELD_NUMBER: _ClassVar[int]
    ALIGNMENTS_SIZE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    NORMALIZE_FIELD_NUMBER: _ClassVar[int]
    ATTENTION_OPTION_FIELD_NUMBER: _ClassVar[int]
    batch_size: int
    query_depth: int
    alignments_size: int
    scale: bool
    normalize: bool
    attention_option: str
    def __init__(self, batch_size: _Optional[int] = ..., query_depth: _Optional[int] = ..., alignments_size: _Optional[int] = ..., scale: _Optional[bool] = ..., normalize: _Optional[bool] = ..., attention_option: _Optional[str] = ...) -> None: ...

class AugmentationCoeff(_message.Message):
    __slots__ = ("mirror", "dx", "dy", "angle", "zoom_x", "zoom_y", "pow_nomean0", "pow_nomean1", "pow_nomean2", "add_nomean0", "add_nomean1", "add_nomean2", "mult_nomean0", "mult_nomean1", "mult_nomean2", "pow_withmean0", "pow_withmean1", "pow_withmean2", "add_withmean0", "add_withmean1", "add_withmean2", "mult_withmean0", "mult_withmean1", "mult_withmean2", "lmult_pow", "lmult_add", "lmult_mult", "col_angle", "fog_amount", "fog_size", "motion_blur_angle", "motion_blur_size", "shadow_angle", "shadow_distance", "shadow_strength", "noise", "gamma", "brightness", "contrast", "color1", "color2", "color3")
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    DX_FIELD_NUMBER: _ClassVar[int]
    DY_FIELD_NUMBER: _ClassVar[int]
    ANGLE_FIELD_NUMBER: _ClassVar[int]
    ZOOM_X_FIELD_NUMBER: _ClassVar[int]
    ZOOM_Y_FIELD_NUMBER: _ClassVar[int]
    POW_NOMEAN0_FIELD_NUMBER: _ClassVar[int]
    POW_NOMEAN1_FIELD_NUMBER: _ClassVar[int]
    POW_NOMEAN2_FIELD_NUMBER: _ClassVar[int]
    ADD_NOMEAN0_FIELD_NUMBER: _ClassVar[int]
    ADD_NOMEAN1_FIELD_NUMBER: _ClassVar[int]
    ADD_NOMEAN2_FIELD_NUMBER: _ClassVar[int]
    MULT_NOMEAN0_FIELD_NUMBER: _ClassVar[int]
    MULT_NOMEAN1_FIELD_NUMBER: _ClassVar[int]
    MULT_NOMEAN2_FIELD_NUMBER: _ClassVar[int]
    POW_WITHMEAN0_FIELD_NUMBER: _ClassVar[int]
    POW_WITHMEAN1_FIELD_NUMBER: _ClassVar[int]
    POW_WITHMEAN2_FIELD_NUMBER: _ClassVar[int]
    ADD_WITHMEAN0_FIELD_NUMBER: _ClassVar[int]
    ADD_WITHMEAN1_FIELD_NUMBER: _ClassVar[int]
    ADD_WITHMEAN2_FIELD_NUMBER: _ClassVar[int]
    MULT_WITHMEAN0_FIELD_NUMBER: _ClassVar[int]
    MULT_WITHMEAN1_FIELD_NUMBER: _ClassVar[int]
    MULT_WITHMEAN2_FIELD_NUMBER: _ClassVar[int]
    LMULT_POW_FIELD_NUMBER: _ClassVar[int]
    LMULT_ADD_FIELD_NUMBER: _ClassVar[int]
    LMULT_MULT_FIELD_NUMBER: _ClassVar[int]
    COL_ANGLE_FIELD_NUMBER: _ClassVar[int]
    FOG_AMOUNT_FIELD_NUMBER: _ClassVar[int]
    FOG_SIZE_FIELD_NUMBER: _ClassVar[int]
    MOTION_BLUR_ANGLE_FIELD_NUMBER: _ClassVar[int]
    MOTION_BLUR_SIZE_FIELD_NUMBER: _ClassVar[int]
    SHADOW_ANGLE_FIELD_NUMBER: _ClassVar[int]
    SHADOW_DISTANCE_FIELD_NUMBER: _ClassVar[int]
    SHADOW_STRENGTH_FIELD_NUMBER: _ClassVar[int]
    NOISE_FIELD_NUMBER: _ClassVar[int]
    GAMMA_FIELD_NUMBER: _ClassVar[int]
    BRIGHTNESS_FIELD_NUMBER: _ClassVar[int]
    CONTRAST_FIELD_NUMBER: _ClassVar[int]
    COLOR1_FIELD_NUMBER: _ClassVar[int]
    COLOR2_FIELD_NUMBER: _ClassVar[int]
    COLOR3_FIELD_NUMBER: _ClassVar[int]
    mirror: float
    dx: float
    dy: float
    angle: float
    zoom_x: float
    zoom_y: float
    pow_nomean0: float
    pow_nomean1: float
    pow_nomean2: float
    add_nomean0: float
    add_nomean1: float
    add_nomean2: float
    mult_nomean0: float
    mult_nomean1: float
    mult_nomean2: float
    pow_withmean0: float
    pow_withmean1: float
    pow_withmean2: float
    add_withmean0: float
    add_withmean1: float
    add_withmean2: float
    mult_withmean0: float
    mult_withmean1: float
    mult_withmean2: float
    lmult_pow: float
    lmult_add: float
    lmult_mult: float
    col_angle: float
    fog_amount: float
    fog_size: float
    motion_blur_angle: float
    motion_blur_size: float
    shadow_angle: float
    shadow_distance: float
    shadow_strength: float
    noise: float
    gamma: float
    brightness: float
    contrast: float
    color1: float
    color2: float
    color3: float
    def __init__(self, mirror: _Optional[float] = ..., dx: _Optional[float] = ..., dy: _Optional[float] = ..., angle: _Optional[float] = ..., zoom_x: _Optional[float] = ..., zoom_y: _Optional[float] = ..., pow_nomean0: _Optional[float] = ..., pow_nomean1: _Optional[float] = ..., pow_nomean2: _Optional[float] = ..., add_nomean0: _Optional[float] = ..., add_nomean1: _Optional[float] = ..., add_nomean2: _Optional[float] = ..., mult_nomean0: _Optional[float] = ..., mult_nomean1: _Optional[float] = ..., mult_nomean2: _Optional[float] = ..., pow_withmean0: _Optional[float] = ..., pow_withmean1: _Optional[float] = ..., pow_withmean2: _Optional[float] = ..., add_withmean0: _Optional[float] = ..., add_withmean1: _Optional[float] = ..., add_withmean2: _Optional[float] = ..., mult_withmean0: _Optional[float] = ..., mult_withmean1: _Optional[float] = ..., mult_withmean2: _Optional[float] = ..., lmult_pow: _Optional[float] = ..., lmult_add: _Optional[float] = ..., lmult_mult: _Optional[float] = ..., col_angle: _Optional[float] = ..., fog_amount: _Optional[float] = ..., fog_size: _Optional[float] = ..., motion_blur_angle: _Optional[float] = ..., motion_blur_size: _Optional[float] = ..., shadow_angle: _Optional[float] = ..., shadow_distance: _Optional[float] = ..., shadow_strength: _Optional[float] = ..., noise: _Optional[float] = ..., gamma: _Optional[float] = ..., brightness: _Optional[float] = ..., contrast: _Optional[float] = ..., color1: _Optional[float] = ..., color2: _Optional[float] = ..., color3: _Optional[float] = ...) -> None: ...

class AugmentationParameter(_message.Message):
    __slots__ = ("write_augmented", "max_multiplier", "augment_during_test", "recompute_mean", "write_mean", "mean_per_pixel", "mode", "mirror", "translate", "rotate", "zoom", "squeeze", "translate_x", "translate_y", "mean", "lmult_pow", "lmult_mult", "lmult_add", "sat_pow", "sat_mult", "sat_add", "col_pow", "col_mult", "col_add", "ladd_pow", "ladd_mult", "ladd_add", "col_rotate", "crop_width", "crop_height", "gamma", "brightness", "contrast", "color", "bottomwidth", "bottomheight", "num", "chromatic_eigvec", "fog_amount", "fog_size", "motion_blur_angle", "motion_blur_size", "shadow_angle", "shadow_distance", "shadow_strength", "noise")
    WRITE_AUGMENTED_FIELD_NUMBER: _ClassVar[int]
    MAX_MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    AUGMENT_DURING_TEST_FIELD_NUMBER: _ClassVar[int]
    RECOMPUTE_MEAN_FIELD_NUMBER: _ClassVar[int]
    WRITE_MEAN_FIELD_NUMBER: _ClassVar[int]
    MEAN_PER_PIXEL_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    TRANSLATE_FIELD_NUMBER: _ClassVar[int]
    ROTATE_FIELD_NUMBER: _ClassVar[int]
    ZOOM_FIELD_NUMBER: _ClassVar[int]
    SQUEEZE_FIELD_NUMBER: _ClassVar[int]
    TRANSLATE_X_FIELD_NUMBER: _ClassVar[int]
    TRANSLATE_Y_FIELD_NUMBER: _ClassVar[int]
    MEAN_FIELD_NUMBER: _ClassVar[int]
    LMULT_POW_FIELD_NUMBER: _ClassVar[int]
    LMULT_MULT_FIELD_NUMBER: _ClassVar[int]
    LMULT_ADD_FIELD_NUMBER: _ClassVar[int]
    SAT_POW_FIELD_NUMBER: _ClassVar[int]
    SAT_MULT_FIELD_NUMBER: _ClassVar[int]
    SAT_ADD_FIELD_NUMBER: _ClassVar[int]
    COL_POW_FIELD_NUMBER: _ClassVar[int]
    COL_MULT_FIELD_NUMBER: _ClassVar[int]
    COL_ADD_FIELD_NUMBER: _ClassVar[int]
    LADD_POW_FIELD_NUMBER: _ClassVar[int]
    LADD_MULT_FIELD_NUMBER: _ClassVar[int]
    LADD_ADD_FIELD_NUMBER: _ClassVar[int]
    COL_ROTATE_FIELD_NUMBER: _ClassVar[int]
    CROP_WIDTH_FIELD_NUMBER: _ClassVar[int]
    CROP_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    GAMMA_FIELD_NUMBER: _ClassVar[int]
    BRIGHTNESS_FIELD_NUMBER: _ClassVar[int]
    CONTRAST_FIELD_NUMBER: _ClassVar[int]
    COLOR_FIELD_NUMBER: _ClassVar[int]
    BOTTOMWIDTH_FIELD_NUMBER: _ClassVar[int]
    BOTTOMHEIGHT_FIELD_NUMBER: _ClassVar[int]
    NUM_FIELD_NUMBER: _ClassVar[int]
    CHROMATIC_EIGVEC_FIELD_NUMBER: _ClassVar[int]
    FOG_AMOUNT_FIELD_NUMBER: _ClassVar[int]
    FOG_SIZE_FIELD_NUMBER: _ClassVar[int]
    MOTION_BLUR_ANGLE_FIELD_NUMBER: _ClassVar[int]
    MOTION_BLUR_SIZE_FIELD_NUMBER: _ClassVar[int]
    SHADOW_ANGLE_FIELD_NUMBER: _ClassVar[int]
    SHADOW_DISTANCE_FIELD_NUMBER: _ClassVar[int]
    SHADOW_STRENGTH_FIELD_NUMBER: _ClassVar[int]
    NOISE_FIELD_NUMBER: _ClassVar[int]
    write_augmented: str
    max_multiplier: float
    augment_during_test: bool
    recompute_mean: int
    write_mean: str
    mean_per_pixel: bool
    mode: str
    mirror: RandomGeneratorParameter
    translate: RandomGeneratorParameter
    rotate: RandomGeneratorParameter
    zoom: RandomGeneratorParameter
    squeeze: RandomGeneratorParameter
    translate_x: RandomGeneratorParameter
    translate_y: RandomGeneratorParameter
    mean: _containers.RepeatedScalarFieldContainer[float]
    lmult_pow: RandomGeneratorParameter
    lmult_mult: RandomGeneratorParameter
    lmult_add: RandomGeneratorParameter
    sat_pow: RandomGeneratorParameter
    sat_mult: RandomGeneratorParameter
    sat_add: RandomGeneratorParameter
    col_pow: RandomGeneratorParameter
    col_mult: RandomGeneratorParameter
    col_add: RandomGeneratorParameter
    ladd_pow: RandomGeneratorParameter
    ladd_mult: RandomGeneratorParameter
    ladd_add: RandomGeneratorParameter
    col_rotate: RandomGeneratorParameter
    crop_width: int
    crop_height: int
    gamma: RandomGeneratorParameter
    brightness: RandomGeneratorParameter
    contrast: RandomGeneratorParameter
    color: RandomGeneratorParameter
    bottomwidth: int
    bottomheight: int
    num: int
    chromatic_eigvec: _containers.RepeatedScalarFieldContainer[float]
    fog_amount: RandomGeneratorParameter
    fog_size: RandomGeneratorParameter
    motion_blur_angle: RandomGeneratorParameter
    motion_blur_size: RandomGeneratorParameter
    shadow_angle: RandomGeneratorParameter
    shadow_distance: RandomGeneratorParameter
    shadow_strength: RandomGeneratorParameter
    noise: RandomGeneratorParameter
    def __init__(self, write_augmented: _Optional[str] = ..., max_multiplier: _Optional[float] = ..., augment_during_test: _Optional[bool] = ..., recompute_mean: _Optional[int] = ..., write_mean: _Optional[str] = ..., mean_per_pixel: _Optional[bool] = ..., mode: _Optional[str] = ..., mirror: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., translate: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., rotate: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., zoom: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., squeeze: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., translate_x: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., translate_y: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., mean: _Optional[_Iterable[float]] = ..., lmult_pow: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., lmult_mult: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., lmult_add: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., sat_pow: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., sat_mult: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., sat_add: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., col_pow: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., col_mult: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., col_add: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., ladd_pow: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., ladd_mult: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., ladd_add: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., col_rotate: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., crop_width: _Optional[int] = ..., crop_height: _Optional[int] = ..., gamma: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., brightness: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., contrast: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., color: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., bottomwidth: _Optional[int] = ..., bottomheight: _Optional[int] = ..., num: _Optional[int] = ..., chromatic_eigvec: _Optional[_Iterable[float]] = ..., fog_amount: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., fog_size: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., motion_blur_angle: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., motion_blur_size: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., shadow_angle: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., shadow_distance: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., shadow_strength: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., noise: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ...) -> None: ...

class BBoxRegParameter(_message.Message):
    __slots__ = ("bbox_mean", "bbox_std", "cls_aware")
    BBOX_MEAN_FIELD_NUMBER: _ClassVar[int]
    BBOX_STD_FIELD_NUMBER: _ClassVar[int]
    CLS_AWARE_FIELD_NUMBER: _ClassVar[int]
    bbox_mean: _containers.RepeatedScalarFieldContainer[float]
    bbox_std: _containers.RepeatedScalarFieldContainer[float]
    cls_aware: bool
    def __init__(self, bbox_mean: _Optional[_Iterable[float]] = ..., bbox_std: _Optional[_Iterable[float]] = ..., cls_aware: _Optional[bool] = ...) -> None: ...

class BNParameter(_message.Message):
    __slots__ = ("slope_filler", "bias_filler", "momentum", "eps", "frozen", "engine", "icnet", "bn_mode", "scale_filler", "shift_filler")
    class BNMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        LEARN: _ClassVar[BNParameter.BNMode]
        INFERENCE: _ClassVar[BNParameter.BNMode]
    LEARN: BNParameter.BNMode
    INFERENCE: BNParameter.BNMode
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[BNParameter.Engine]
        CAFFE: _ClassVar[BNParameter.Engine]
        CUDNN: _ClassVar[BNParameter.Engine]
    DEFAULT: BNParameter.Engine
    CAFFE: BNParameter.Engine
    CUDNN: BNParameter.Engine
    SLOPE_FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    MOMENTUM_FIELD_NUMBER: _ClassVar[int]
    EPS_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    ICNET_FIELD_NUMBER: _ClassVar[int]
    BN_MODE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FILLER_FIELD_NUMBER: _ClassVar[int]
    SHIFT_FILLER_FIELD_NUMBER: _ClassVar[int]
    slope_filler: FillerParameter
    bias_filler: FillerParameter
    momentum: float
    eps: float
    frozen: bool
    engine: BNParameter.Engine
    icnet: bool
    bn_mode: BNParameter.BNMode
    scale_filler: FillerParameter
    shift_filler: FillerParameter
    def __init__(self, slope_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., momentum: _Optional[float] = ..., eps: _Optional[float] = ..., frozen: _Optional[bool] = ..., engine: _Optional[_Union[BNParameter.Engine, str]] = ..., icnet: _Optional[bool] = ..., bn_mode: _Optional[_Union[BNParameter.BNMode, str]] = ..., scale_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., shift_filler: _Optional[_Union[FillerParameter, _Mapping]] = ...) -> None: ...

class BatchContrastiveParameter(_message.Message):
    __slots__ = ("positive_margin", "negative_margin", "positive_weight", "negative_weight", "max_only")
    POSITIVE_MARGIN_FIELD_NUMBER: _ClassVar[int]
    NEGATIVE_MARGIN_FIELD_NUMBER: _ClassVar[int]
    POSITIVE_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    NEGATIVE_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    MAX_ONLY_FIELD_NUMBER: _ClassVar[int]
    positive_margin: float
    negative_margin: float
    positive_weight: float
    negative_weight: float
    max_only: bool
    def __init__(self, positive_margin: _Optional[float] = ..., negative_margin: _Optional[float] = ..., positive_weight: _Optional[float] = ..., negative_weight: _Optional[float] = ..., max_only: _Optional[bool] = ...) -> None: ...

class BatchReductionParameter(_message.Message):
    __slots__ = ("level", "reduction_param", "pos")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    REDUCTION_PARAM_FIELD_NUMBER: _ClassVar[int]
    POS_FIELD_NUMBER: _ClassVar[int]
    level: _containers.RepeatedScalarFieldContainer[int]
    reduction_param: ReductionParameter
    pos: bool
    def __init__(self, level: _Optional[_Iterable[int]] = ..., reduction_param: _Optional[_Union[ReductionParameter, _Mapping]] = ..., pos: _Optional[bool] = ...) -> None: ...

class BatchSampler(_message.Message):
    __slots__ = ("use_original_image", "sampler", "sample_constraint", "max_sample", "max_trials")
    USE_ORIGINAL_IMAGE_FIELD_NUMBER: _ClassVar[int]
    SAMPLER_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_CONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    MAX_SAMPLE_FIELD_NUMBER: _ClassVar[int]
    MAX_TRIALS_FIELD_NUMBER: _ClassVar[int]
    use_original_image: bool
    sampler: Sampler
    sample_constraint: SampleConstraint
    max_sample: int
    max_trials: int
    def __init__(self, use_original_image: _Optional[bool] = ..., sampler: _Optional[_Union[Sampler, _Mapping]] = ..., sample_constraint: _Optional[_Union[SampleConstraint, _Mapping]] = ..., max_sample: _Optional[int] = ..., max_trials: _Optional[int] = ...) -> None: ...

class BatchToSpaceNDParameter(_message.Message):
    __slots__ = ("block_shape", "crops")
    BLOCK_SHAPE_FIELD_NUMBER: _ClassVar[int]
    CROPS_FIELD_NUMBER: _ClassVar[int]
    block_shape: _containers.RepeatedScalarFieldContainer[int]
    crops: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, block_shape: _Optional[_Iterable[int]] = ..., crops: _Optional[_Iterable[int]] = ...) -> None: ...

class BiasChannelParameter(_message.Message):
    __slots__ = ("bg_bias", "fg_bias", "ignore_label", "label_type", "background_label")
    class LabelType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        IMAGE: _ClassVar[BiasChannelParameter.LabelType]
        PIXEL: _ClassVar[BiasChannelParameter.LabelType]
    IMAGE: BiasChannelParameter.LabelType
    PIXEL: BiasChannelParameter.LabelType
    BG_BIAS_FIELD_NUMBER: _ClassVar[int]
    FG_BIAS_FIELD_NUMBER: _ClassVar[int]
    IGNORE_LABEL_FIELD_NUMBER: _ClassVar[int]
    LABEL_TYPE_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_LABEL_FIELD_NUMBER: _ClassVar[int]
    bg_bias: float
    fg_bias: float
    ignore_label: _containers.RepeatedScalarFieldContainer[int]
    label_type: BiasChannelParameter.LabelType
    background_label: int
    def __init__(self, bg_bias: _Optional[float] = ..., fg_bias: _Optional[float] = ..., ignore_label: _Optional[_Iterable[int]] = ..., label_type: _Optional[_Union[BiasChannelParameter.LabelType, str]] = ..., background_label: _Optional[int] = ...) -> None: ...

class BlackAugmentationParameter(_message.Message):
    __slots__ = ("black", "border")
    BLACK_FIELD_NUMBER: _ClassVar[int]
    BORDER_FIELD_NUMBER: _ClassVar[int]
    black: RandomGeneratorParameter
    border: RandomGeneratorParameter
    def __init__(self, black: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ..., border: _Optional[_Union[RandomGeneratorParameter, _Mapping]] = ...) -> None: ...

class BoxAnnotatorOHEMParameter(_message.Message):
    __slots__ = ("roi_per_img", "ignore_label")
    ROI_PER_IMG_FIELD_NUMBER: _ClassVar[int]
    IGNORE_LABEL_FIELD_NUMBER: _ClassVar[int]
    roi_per_img: int
    ignore_label: int
    def __init__(self, roi_per_img: _Optional[int] = ..., ignore_label: _Optional[int] = ...) -> None: ...

class BoxGroupOutputParameter(_message.Message):
    __slots__ = ("fg_thr", "iou_thr", "nms_type", "box_group_param", "field_whr", "field_xyr", "max_nms_num", "max_post_nms_num", "min_size")
    FG_THR_FIELD_NUMBER: _ClassVar[int]
    IOU_THR_FIELD_NUMBER: _ClassVar[int]
    NMS_TYPE_FIELD_NUMBER: _ClassVar[int]
    BOX_GROUP_PARAM_FIELD_NUMBER: _ClassVar[int]
    FIELD_WHR_FIELD_NUMBER: _ClassVar[int]
    FIELD_XYR_FIELD_NUMBER: _ClassVar[int]
    MAX_NMS_NUM_FIELD_NUMBER: _ClassVar[int]
    MAX_POST_NMS_NUM_FIELD_NUMBER: _ClassVar[int]
    MIN_SIZE_FIELD_NUMBER: _ClassVar[int]
    fg_thr: float
    iou_thr: float
    nms_type: str
    box_group_param: _containers.RepeatedCompositeFieldContainer[BoxGroupParameter]
    field_whr: float
    field_xyr: float
    max_nms_num: int
    max_post_nms_num: int
    min_size: float
    def __init__(self, fg_thr: _Optional[float] = ..., iou_thr: _Optional[float] = ..., nms_type: _Optional[str] = ..., box_group_param: _Optional[_Iterable[_Union[BoxGroupParameter, _Mapping]]] = ..., field_whr: _Optional[float] = ..., field_xyr: _Optional[float] = ..., max_nms_num: _Optional[int] = ..., max_post_nms_num: _Optional[int] = ..., min_size: _Optional[float] = ...) -> None: ...

class BoxGroupParameter(_message.Message):
    __slots__ = ("field_h", "field_w", "stride")
    FIELD_H_FIELD_NUMBER: _ClassVar[int]
    FIELD_W_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    field_h: _containers.RepeatedScalarFieldContainer[int]
    field_w: _containers.RepeatedScalarFieldContainer[int]
    stride: int
    def __init__(self, field_h: _Optional[_Iterable[int]] = ..., field_w: _Optional[_Iterable[int]] = ..., stride: _Optional[int] = ...) -> None: ...

class BoxOutputParameter(_message.Message):
    __slots__ = ("fg_thr", "iou_thr", "nms_type", "field_h", "field_w", "downsample_rate", "field_whr", "field_xyr", "max_nms_num", "max_post_nms_num", "min_size")
    FG_THR_FIELD_NUMBER: _ClassVar[int]
    IOU_THR_FIELD_NUMBER: _ClassVar[int]
    NMS_TYPE_FIELD_NUMBER: _ClassVar[int]
    FIELD_H_FIELD_NUMBER: _ClassVar[int]
    FIELD_W_FIELD_NUMBER: _ClassVar[int]
    DOWNSAMPLE_RATE_FIELD_NUMBER: _ClassVar[int]
    FIELD_WHR_FIELD_NUMBER: _ClassVar[int]
    FIELD_XYR_FIELD_NUMBER: _ClassVar[int]
    MAX_NMS_NUM_FIELD_NUMBER: _ClassVar[int]
    MAX_POST_NMS_NUM_FIELD_NUMBER: _ClassVar[int]
    MIN_SIZE_FIELD_NUMBER: _ClassVar[int]
    fg_thr: float
    iou_thr: float
    nms_type: str
    field_h: _containers.RepeatedScalarFieldContainer[int]
    field_w: _containers.RepeatedScalarFieldContainer[int]
    downsample_rate: _containers.RepeatedScalarFieldContainer[int]
    field_whr: float
    field_xyr: float
    max_nms_num: int
    max_post_nms_num: int
    min_size: float
    def __init__(self, fg_thr: _Optional[float] = ..., iou_thr: _Optional[float] = ..., nms_type: _Optional[str] = ..., field_h: _Optional[_Iterable[int]] = ..., field_w: _Optional[_Iterable[int]] = ..., downsample_rate: _Optional[_Iterable[int]] = ..., field_whr: _Optional[float] = ..., field_xyr: _Optional[float] = ..., max_nms_num: _Optional[int] = ..., max_post_nms_num: _Optional[int] = ..., min_size: _Optional[float] = ...) -> None: ...

class BroadcastToParameter(_message.Message):
    __slots__ = ("shape",)
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, shape: _Optional[_Iterable[int]] = ...) -> None: ...

class C2TensorProto(_message.Message):
    __slots__ = ("dims", "data_type", "float_data", "int32_data", "byte_data", "string_data", "name", "double_data", "int64_data")
    class DataType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNDEFINED: _ClassVar[C2TensorProto.DataType]
        FLOAT: _ClassVar[C2TensorProto.DataType]
        INT32: _ClassVar[C2TensorProto.DataType]
        BYTE: _ClassVar[C2TensorProto.DataType]
        STRING: _ClassVar[C2TensorProto.DataType]
        BOOL: _ClassVar[C2TensorProto.DataType]
        UINT8: _ClassVar[C2TensorProto.DataType]
        INT8: _ClassVar[C2TensorProto.DataType]
        UINT16: _ClassVar[C2TensorProto.DataType]
        INT16: _ClassVar[C2TensorProto.DataType]
        INT64: _ClassVar[C2TensorProto.DataType]
        FLOAT16: _ClassVar[C2TensorProto.DataType]
        DOUBLE: _ClassVar[C2TensorProto.DataType]
    UNDEFINED: C2TensorProto.DataType
    FLOAT: C2TensorProto.DataType
    INT32: C2TensorProto.DataType
    BYTE: C2TensorProto.DataType
    STRING: C2TensorProto.DataType
    BOOL: C2TensorProto.DataType
    UINT8: C2TensorProto.DataType
    INT8: C2TensorProto.DataType
    UINT16: C2TensorProto.DataType
    INT16: C2TensorProto.DataType
    INT64: C2TensorProto.DataType
    FLOAT16: C2TensorProto.DataType
    DOUBLE: C2TensorProto.DataType
    DIMS_FIELD_NUMBER: _ClassVar[int]
    DATA_TYPE_FIELD_NUMBER: _ClassVar[int]
    FLOAT_DATA_FIELD_NUMBER: _ClassVar[int]
    INT32_DATA_FIELD_NUMBER: _ClassVar[int]
    BYTE_DATA_FIELD_NUMBER: _ClassVar[int]
    STRING_DATA_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_DATA_FIELD_NUMBER: _ClassVar[int]
    INT64_DATA_FIELD_NUMBER: _ClassVar[int]
    dims: _containers.RepeatedScalarFieldContainer[int]
    data_type: C2TensorProto.DataType
    float_data: _containers.RepeatedScalarFieldContainer[float]
    int32_data: _containers.RepeatedScalarFieldContainer[int]
    byte_data: bytes
    string_data: _containers.RepeatedScalarFieldContainer[bytes]
    name: str
    double_data: _containers.RepeatedScalarFieldContainer[float]
    int64_data: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, dims: _Optional[_Iterable[int]] = ..., data_type: _Optional[_Union[C2TensorProto.DataType, str]] = ..., float_data: _Optional[_Iterable[float]] = ..., int32_data: _Optional[_Iterable[int]] = ..., byte_data: _Optional[bytes] = ..., string_data: _Optional[_Iterable[bytes]] = ..., name: _Optional[str] = ..., double_data: _Optional[_Iterable[float]] = ..., int64_data: _Optional[_Iterable[int]] = ...) -> None: ...

class C2TensorProtos(_message.Message):
    __slots__ = ("protos",)
    PROTOS_FIELD_NUMBER: _ClassVar[int]
    protos: _containers.RepeatedCompositeFieldContainer[C2TensorProto]
    def __init__(self, protos: _Optional[_Iterable[_Union[C2TensorProto, _Mapping]]] = ...) -> None: ...

class CenterLossParameter(_message.Message):
    __slots__ = ("num_output", "center_filler", "axis", "distance_type")
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    CENTER_FILLER_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    DISTANCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    center_filler: FillerParameter
    axis: int
    distance_type: str
    def __init__(self, num_output: _Optional[int] = ..., center_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., axis: _Optional[int] = ..., distance_type: _Optional[str] = ...) -> None: ...

class ChannelScaleParameter(_message.Message):
    __slots__ = ("do_forward", "do_backward_feature", "do_backward_scale", "global_scale", "max_global_scale", "min_global_scale", "init_global_scale")
    DO_FORWARD_FIELD_NUMBER: _ClassVar[int]
    DO_BACKWARD_FEATURE_FIELD_NUMBER: _ClassVar[int]
    DO_BACKWARD_SCALE_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_SCALE_FIELD_NUMBER: _ClassVar[int]
    MAX_GLOBAL_SCALE_FIELD_NUMBER: _ClassVar[int]
    MIN_GLOBAL_SCALE_FIELD_NUMBER: _ClassVar[int]
    INIT_GLOBAL_SCALE_FIELD_NUMBER: _ClassVar[int]
    do_forward: bool
    do_backward_feature: bool
    do_backward_scale: bool
    global_scale: bool
    max_global_scale: float
    min_global_scale: float
    init_global_scale: float
    def __init__(self, do_forward: _Optional[bool] = ..., do_backward_feature: _Optional[bool] = ..., do_backward_scale: _Optional[bool] = ..., global_scale: _Optional[bool] = ..., max_global_scale: _Optional[float] = ..., min_global_scale: _Optional[float] = ..., init_global_scale: _Optional[float] = ...) -> None: ...

class CoeffScheduleParameter(_message.Message):
    __slots__ = ("half_life", "initial_coeff", "final_coeff")
    HALF_LIFE_FIELD_NUMBER: _ClassVar[int]
    INITIAL_COEFF_FIELD_NUMBER: _ClassVar[int]
    FINAL_COEFF_FIELD_NUMBER: _ClassVar[int]
    half_life: float
    initial_coeff: float
    final_coeff: float
    def __init__(self, half_life: _Optional[float] = ..., initial_coeff: _Optional[float] = ..., final_coeff: _Optional[float] = ...) -> None: ...

class CompileNetState(_message.Message):
    __slots__ = ("is_init", "bn_scale_remove", "bn_scale_merge", "kept_bn_layers", "negative_conv_names", "negative_conv_indexes")
    IS_INIT_FIELD_NUMBER: _ClassVar[int]
    BN_SCALE_REMOVE_FIELD_NUMBER: _ClassVar[int]
    BN_SCALE_MERGE_FIELD_NUMBER: _ClassVar[int]
    KEPT_BN_LAYERS_FIELD_NUMBER: _ClassVar[int]
    NEGATIVE_CONV_NAMES_FIELD_NUMBER: _ClassVar[int]
    NEGATIVE_CONV_INDEXES_FIELD_NUMBER: _ClassVar[int]
    is_init: bool
    bn_scale_remove: bool
    bn_scale_merge: bool
    kept_bn_layers: _containers.RepeatedScalarFieldContainer[str]
    negative_conv_names: _containers.RepeatedScalarFieldContainer[str]
    negative_conv_indexes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, is_init: _Optional[bool] = ..., bn_scale_remove: _Optional[bool] = ..., bn_scale_merge: _Optional[bool] = ..., kept_bn_layers: _Optional[_Iterable[str]] = ..., negative_conv_names: _Optional[_Iterable[str]] = ..., negative_conv_indexes: _Optional[_Iterable[int]] = ...) -> None: ...

class ConfidencePenaltyLossParameter(_message.Message):
    __slots__ = ("beta",)
    BETA_FIELD_NUMBER: _ClassVar[int]
    beta: float
    def __init__(self, beta: _Optional[float] = ...) -> None: ...

class Convolution3DParameter(_message.Message):
    __slots__ = ("num_output", "bias_term", "pad", "kernel_size", "group", "kernel_depth", "stride", "temporal_stride", "weight_filler", "bias_filler", "filter_group", "temporal_pad")
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    BIAS_TERM_FIELD_NUMBER: _ClassVar[int]
    PAD_FIELD_NUMBER: _ClassVar[int]
    KERNEL_SIZE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    KERNEL_DEPTH_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    TEMPORAL_STRIDE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    FILTER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TEMPORAL_PAD_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    bias_term: bool
    pad: int
    kernel_size: int
    group: int
    kernel_depth: int
    stride: int
    temporal_stride: int
    weight_filler: FillerParameter
    bias_filler: FillerParameter
    filter_group: int
    temporal_pad: int
    def __init__(self, num_output: _Optional[int] = ..., bias_term: _Optional[bool] = ..., pad: _Optional[int] = ..., kernel_size: _Optional[int] = ..., group: _Optional[int] = ..., kernel_depth: _Optional[int] = ..., stride: _Optional[int] = ..., temporal_stride: _Optional[int] = ..., weight_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., filter_group: _Optional[int] = ..., temporal_pad: _Optional[int] = ...) -> None: ...

class Corr1dParameter(_message.Message):
    __slots__ = ("stride", "num_of_shifts")
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    NUM_OF_SHIFTS_FIELD_NUMBER: _ClassVar[int]
    stride: int
    num_of_shifts: int
    def __init__(self, stride: _Optional[int] = ..., num_of_shifts: _Optional[int] = ...) -> None: ...

class CorrelationParameter(_message.Message):
    __slots__ = ("pad", "kernel_size", "max_displacement", "stride_1", "stride_2", "do_abs", "single_direction", "correlation_type")
    class CorrelationType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MULTIPLY: _ClassVar[CorrelationParameter.CorrelationType]
        SUBTRACT: _ClassVar[CorrelationParameter.CorrelationType]
    MULTIPLY: CorrelationParameter.CorrelationType
    SUBTRACT: CorrelationParameter.CorrelationType
    PAD_FIELD_NUMBER: _ClassVar[int]
    KERNEL_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_DISPLACEMENT_FIELD_NUMBER: _ClassVar[int]
    STRIDE_1_FIELD_NUMBER: _ClassVar[int]
    STRIDE_2_FIELD_NUMBER: _ClassVar[int]
    DO_ABS_FIELD_NUMBER: _ClassVar[int]
    SINGLE_DIRECTION_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_TYPE_FIELD_NUMBER: _ClassVar[int]
    pad: int
    kernel_size: int
    max_displacement: int
    stride_1: int
    stride_2: int
    do_abs: bool
    single_direction: int
    correlation_type: CorrelationParameter.CorrelationType
    def __init__(self, pad: _Optional[int] = ..., kernel_size: _Optional[int] = ..., max_displacement: _Optional[int] = ..., stride_1: _Optional[int] = ..., stride_2: _Optional[int] = ..., do_abs: _Optional[bool] = ..., single_direction: _Optional[int] = ..., correlation_type: _Optional[_Union[CorrelationParameter.CorrelationType, str]] = ...) -> None: ...

class CountNonzeroParameter(_message.Message):
    __slots__ = ("axis", "keepdims")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    KEEPDIMS_FIELD_NUMBER: _ClassVar[int]
    axis: _containers.RepeatedScalarFieldContainer[int]
    keepdims: bool
    def __init__(self, axis: _Optional[_Iterable[int]] = ..., keepdims: _Optional[bool] = ...) -> None: ...

class CropAndResizeParameter(_message.Message):
    __slots__ = ("crop_h", "crop_w", "extrapolation_value", "data_format")
    CROP_H_FIELD_NUMBER: _ClassVar[int]
    CROP_W_FIELD_NUMBER: _ClassVar[int]
    EXTRAPOLATION_VALUE_FIELD_NUMBER: _ClassVar[int]
    DATA_FORMAT_FIELD_NUMBER: _ClassVar[int]
    crop_h: int
    crop_w: int
    extrapolation_value: float
    data_format: str
    def __init__(self, crop_h: _Optional[int] = ..., crop_w: _Optional[int] = ..., extrapolation_value: _Optional[float] = ..., data_format: _Optional[str] = ...) -> None: ...

class DecodeBBoxParameter(_message.Message):
    __slots__ = ("gt_iou_thr",)
    GT_IOU_THR_FIELD_NUMBER: _ClassVar[int]
    gt_iou_thr: float
    def __init__(self, gt_iou_thr: _Optional[float] = ...) -> None: ...

class DenseCRFParameter(_message.Message):
    __slots__ = ("max_iter", "pos_xy_std", "pos_w", "bi_xy_std", "bi_rgb_std", "bi_w", "output_probability")
    MAX_ITER_FIELD_NUMBER: _ClassVar[int]
    POS_XY_STD_FIELD_NUMBER: _ClassVar[int]
    POS_W_FIELD_NUMBER: _ClassVar[int]
    BI_XY_STD_FIELD_NUMBER: _ClassVar[int]
    BI_RGB_STD_FIELD_NUMBER: _ClassVar[int]
    BI_W_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    max_iter: int
    pos_xy_std: _containers.RepeatedScalarFieldContainer[float]
    pos_w: _containers.RepeatedScalarFieldContainer[float]
    bi_xy_std: _containers.RepeatedScalarFieldContainer[float]
    bi_rgb_std: _containers.RepeatedScalarFieldContainer[float]
    bi_w: _containers.RepeatedScalarFieldContainer[float]
    output_probability: bool
    def __init__(self, max_iter: _Optional[int] = ..., pos_xy_std: _Optional[_Iterable[float]] = ..., pos_w: _Optional[_Iterable[float]] = ..., bi_xy_std: _Optional[_Iterable[float]] = ..., bi_rgb_std: _Optional[_Iterable[float]] = ..., bi_w: _Optional[_Iterable[float]] = ..., output_probability: _Optional[bool] = ...) -> None: ...

class DenseImageDataParameter(_message.Message):
    __slots__ = ("source", "batch_size", "rand_skip", "shuffle", "new_height", "new_width", "is_color", "mean_file", "root_folder", "mirror", "crop_width", "crop_height", "label_divide_factor")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    RAND_SKIP_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    NEW_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    NEW_WIDTH_FIELD_NUMBER: _ClassVar[int]
    IS_COLOR_FIELD_NUMBER: _ClassVar[int]
    MEAN_FILE_FIELD_NUMBER: _ClassVar[int]
    ROOT_FOLDER_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    CROP_WIDTH_FIELD_NUMBER: _ClassVar[int]
    CROP_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    LABEL_DIVIDE_FACTOR_FIELD_NUMBER: _ClassVar[int]
    source: str
    batch_size: int
    rand_skip: int
    shuffle: bool
    new_height: int
    new_width: int
    is_color: bool
    mean_file: str
    root_folder: str
    mirror: bool
    crop_width: int
    crop_height: int
    label_divide_factor: int
    def __init__(self, source: _Optional[str] = ..., batch_size: _Optional[int] = ..., rand_skip: _Optional[int] = ..., shuffle: _Optional[bool] = ..., new_height: _Optional[int] = ..., new_width: _Optional[int] = ..., is_color: _Optional[bool] = ..., mean_file: _Optional[str] = ..., root_folder: _Optional[str] = ..., mirror: _Optional[bool] = ..., crop_width: _Optional[int] = ..., crop_height: _Optional[int] = ..., label_divide_factor: _Optional[int] = ...) -> None: ...

class DepthToSpaceParameter(_message.Message):
    __slots__ = ("block_size", "data_format")
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    DATA_FORMAT_FIELD_NUMBER: _ClassVar[int]
    block_size: int
    data_format: str
    def __init__(self, block_size: _Optional[int] = ..., data_format: _Optional[str] = ...) -> None: ...

class DetectNetAugmentationParameter(_message.Message):
    __slots__ = ("crop_prob", "shift_x", "shift_y", "scale_prob", "scale_min", "scale_max", "flip_prob", "rotation_prob", "max_rotate_degree", "hue_rotation_prob", "hue_rotation", "desaturation_prob", "desaturation_max", "resize_param", "noise_param", "emit_constraint", "distort_param", "expand_param")
    CROP_PROB_FIELD_NUMBER: _ClassVar[int]
    SHIFT_X_FIELD_NUMBER: _ClassVar[int]
    SHIFT_Y_FIELD_NUMBER: _ClassVar[int]
    SCALE_PROB_FIELD_NUMBER: _ClassVar[int]
    SCALE_MIN_FIELD_NUMBER: _ClassVar[int]
    SCALE_MAX_FIELD_NUMBER: _ClassVar[int]
    FLIP_PROB_FIELD_NUMBER: _ClassVar[int]
    ROTATION_PROB_FIELD_NUMBER: _ClassVar[int]
    MAX_ROTATE_DEGREE_FIELD_NUMBER: _ClassVar[int]
    HUE_ROTATION_PROB_FIELD_NUMBER: _ClassVar[int]
    HUE_ROTATION_FIELD_NUMBER: _ClassVar[int]
    DESATURATION_PROB_FIELD_NUMBER: _ClassVar[int]
    DESATURATION_MAX_FIELD_NUMBER: _ClassVar[int]
    RESIZE_PARAM_FIELD_NUMBER: _ClassVar[int]
    NOISE_PARAM_FIELD_NUMBER: _ClassVar[int]
    EMIT_CONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    DISTORT_PARAM_FIELD_NUMBER: _ClassVar[int]
    EXPAND_PARAM_FIELD_NUMBER: _ClassVar[int]
    crop_prob: float
    shift_x: int
    shift_y: int
    scale_prob: float
    scale_min: float
    scale_max: float
    flip_prob: float
    rotation_prob: float
    max_rotate_degree: float
    hue_rotation_prob: float
    hue_rotation: float
    desaturation_prob: float
    desaturation_max: float
    resize_param: ResizeParameter
    noise_param: NoiseParameter
    emit_constraint: EmitConstraint
    distort_param: DistortionParameter
    expand_param: ExpansionParameter
    def __init__(self, crop_prob: _Optional[float] = ..., shift_x: _Optional[int] = ..., shift_y: _Optional[int] = ..., scale_prob: _Optional[float] = ..., scale_min: _Optional[float] = ..., scale_max: _Optional[float] = ..., flip_prob: _Optional[float] = ..., rotation_prob: _Optional[float] = ..., max_rotate_degree: _Optional[float] = ..., hue_rotation_prob: _Optional[float] = ..., hue_rotation: _Optional[float] = ..., desaturation_prob: _Optional[float] = ..., desaturation_max: _Optional[float] = ..., resize_param: _Optional[_Union[ResizeParameter, _Mapping]] = ..., noise_param: _Optional[_Union[NoiseParameter, _Mapping]] = ..., emit_constraint: _Optional[_Union[EmitConstraint, _Mapping]] = ..., distort_param: _Optional[_Union[DistortionParameter, _Mapping]] = ..., expand_param: _Optional[_Union[ExpansionParameter, _Mapping]] = ...) -> None: ...

class DetectNetGroundTruthParameter(_message.Message):
    __slots__ = ("stride", "scale_cvg", "gridbox_type", "max_cvg_len", "min_cvg_len", "coverage_type", "image_size_x", "image_size_y", "obj_norm", "crop_bboxes", "object_class")
    class CoverageType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        RECTANGULAR: _ClassVar[DetectNetGroundTruthParameter.CoverageType]
    RECTANGULAR: DetectNetGroundTruthParameter.CoverageType
    class GridboxType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        GRIDBOX_MAX: _ClassVar[DetectNetGroundTruthParameter.GridboxType]
        GRIDBOX_MIN: _ClassVar[DetectNetGroundTruthParameter.GridboxType]
    GRIDBOX_MAX: DetectNetGroundTruthParameter.GridboxType
    GRIDBOX_MIN: DetectNetGroundTruthParameter.GridboxType
    class ClassMapping(_message.Message):
        __slots__ = ("src", "dst")
        SRC_FIELD_NUMBER: _ClassVar[int]
        DST_FIELD_NUMBER: _ClassVar[int]
        src: int
        dst: int
        def __init__(self, src: _Optional[int] = ..., dst: _Optional[int] = ...) -> None: ...
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    SCALE_CVG_FIELD_NUMBER: _ClassVar[int]
    GRIDBOX_TYPE_FIELD_NUMBER: _ClassVar[int]
    MAX_CVG_LEN_FIELD_NUMBER: _ClassVar[int]
    MIN_CVG_LEN_FIELD_NUMBER: _ClassVar[int]
    COVERAGE_TYPE_FIELD_NUMBER: _ClassVar[int]
    IMAGE_SIZE_X_FIELD_NUMBER: _ClassVar[int]
    IMAGE_SIZE_Y_FIELD_NUMBER: _ClassVar[int]
    OBJ_NORM_FIELD_NUMBER: _ClassVar[int]
    CROP_BBOXES_FIELD_NUMBER: _ClassVar[int]
    OBJECT_CLASS_FIELD_NUMBER: _ClassVar[int]
    stride: int
    scale_cvg: float
    gridbox_type: DetectNetGroundTruthParameter.GridboxType
    max_cvg_len: int
    min_cvg_len: int
    coverage_type: DetectNetGroundTruthParameter.CoverageType
    image_size_x: int
    image_size_y: int
    obj_norm: bool
    crop_bboxes: bool
    object_class: _containers.RepeatedCompositeFieldContainer[DetectNetGroundTruthParameter.ClassMapping]
    def __init__(self, stride: _Optional[int] = ..., scale_cvg: _Optional[float] = ..., gridbox_type: _Optional[_Union[DetectNetGroundTruthParameter.GridboxType, str]] = ..., max_cvg_len: _Optional[int] = ..., min_cvg_len: _Optional[int] = ..., coverage_type: _Optional[_Union[DetectNetGroundTruthParameter.CoverageType, str]] = ..., image_size_x: _Optional[int] = ..., image_size_y: _Optional[int] = ..., obj_norm: _Optional[bool] = ..., crop_bboxes: _Optional[bool] = ..., object_class: _Optional[_Iterable[_Union[DetectNetGroundTruthParameter.ClassMapping, _Mapping]]] = ...) -> None: ...

class DetectionAccuracyParameter(_message.Message):
    __slots__ = ("cls_num", "coord_num", "field_h", "field_w", "downsample_rate", "top_k", "field_whr", "field_xyr", "bg_threshold", "objectness")
    CLS_NUM_FIELD_NUMBER: _ClassVar[int]
    COORD_NUM_FIELD_NUMBER: _ClassVar[int]
    FIELD_H_FIELD_NUMBER: _ClassVar[int]
    FIELD_W_FIELD_NUMBER: _ClassVar[int]
    DOWNSAMPLE_RATE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    FIELD_WHR_FIELD_NUMBER: _ClassVar[int]
    FIELD_XYR_FIELD_NUMBER: _ClassVar[int]
    BG_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    OBJECTNESS_FIELD_NUMBER: _ClassVar[int]
    cls_num: int
    coord_num: int
    field_h: int
    field_w: int
    downsample_rate: int
    top_k: int
    field_whr: float
    field_xyr: float
    bg_threshold: float
    objectness: bool
    def __init__(self, cls_num: _Optional[int] = ..., coord_num: _Optional[int] = ..., field_h: _Optional[int] = ..., field_w: _Optional[int] = ..., downsample_rate: _Optional[int] = ..., top_k: _Optional[int] = ..., field_whr: _Optional[float] = ..., field_xyr: _Optional[float] = ..., bg_threshold: _Optional[float] = ..., objectness: _Optional[bool] = ...) -> None: ...

class DetectionDataParameter(_message.Message):
    __slots__ = ("source", "scale", "batch_size", "coord_num", "stride", "field_h", "field_w", "fg_threshold", "ignore_fg_threshold", "resize_width", "resize_height", "crop_width", "crop_height", "min_scale", "max_scale", "multiscale_prob", "min_whaspect", "max_whaspect", "short_size", "long_size", "min_gt_width", "min_gt_height", "shuffle", "output_gt_boxes", "cache_images", "root_folder", "distort_param", "resize_param", "resize_ratio", "crop_short_size", "crop_long_size", "low_scale_ratio", "high_scale_ratio", "anchor_ignore_margin_ratio", "anchor_ignore_iou_thr", "pickup_iou_thr", "mix_group_size", "template_ratio")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    COORD_NUM_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    FIELD_H_FIELD_NUMBER: _ClassVar[int]
    FIELD_W_FIELD_NUMBER: _ClassVar[int]
    FG_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    IGNORE_FG_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    RESIZE_WIDTH_FIELD_NUMBER: _ClassVar[int]
    RESIZE_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    CROP_WIDTH_FIELD_NUMBER: _ClassVar[int]
    CROP_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    MIN_SCALE_FIELD_NUMBER: _ClassVar[int]
    MAX_SCALE_FIELD_NUMBER: _ClassVar[int]
    MULTISCALE_PROB_FIELD_NUMBER: _ClassVar[int]
    MIN_WHASPECT_FIELD_NUMBER: _ClassVar[int]
    MAX_WHASPECT_FIELD_NUMBER: _ClassVar[int]
    SHORT_SIZE_FIELD_NUMBER: _ClassVar[int]
    LONG_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIN_GT_WIDTH_FIELD_NUMBER: _ClassVar[int]
    MIN_GT_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_GT_BOXES_FIELD_NUMBER: _ClassVar[int]
    CACHE_IMAGES_FIELD_NUMBER: _ClassVar[int]
    ROOT_FOLDER_FIELD_NUMBER: _ClassVar[int]
    DISTORT_PARAM_FIELD_NUMBER: _ClassVar[int]
    RESIZE_PARAM_FIELD_NUMBER: _ClassVar[int]
    RESIZE_RATIO_FIELD_NUMBER: _ClassVar[int]
    CROP_SHORT_SIZE_FIELD_NUMBER: _ClassVar[int]
    CROP_LONG_SIZE_FIELD_NUMBER: _ClassVar[int]
    LOW_SCALE_RATIO_FIELD_NUMBER: _ClassVar[int]
    HIGH_SCALE_RATIO_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_IGNORE_MARGIN_RATIO_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_IGNORE_IOU_THR_FIELD_NUMBER: _ClassVar[int]
    PICKUP_IOU_THR_FIELD_NUMBER: _ClassVar[int]
    MIX_GROUP_SIZE_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_RATIO_FIELD_NUMBER: _ClassVar[int]
    source: str
    scale: float
    batch_size: int
    coord_num: int
    stride: _containers.RepeatedScalarFieldContainer[int]
    field_h: _containers.RepeatedScalarFieldContainer[int]
    field_w: _containers.RepeatedScalarFieldContainer[int]
    fg_threshold: float
    ignore_fg_threshold: float
    resize_width: int
    resize_height: int
    crop_width: int
    crop_height: int
    min_scale: float
    max_scale: float
    multiscale_prob: float
    min_whaspect: float
    max_whaspect: float
    short_size: int
    long_size: int
    min_gt_width: float
    min_gt_height: float
    shuffle: str
    output_gt_boxes: bool
    cache_images: bool
    root_folder: str
    distort_param: DistortionParameter
    resize_param: ResizeParameter
    resize_ratio: float
    crop_short_size: int
    crop_long_size: int
    low_scale_ratio: float
    high_scale_ratio: float
    anchor_ignore_margin_ratio: float
    anchor_ignore_iou_thr: float
    pickup_iou_thr: float
    mix_group_size: int
    template_ratio: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, source: _Optional[str] = ..., scale: _Optional[float] = ..., batch_size: _Optional[int] = ..., coord_num: _Optional[int] = ..., stride: _Optional[_Iterable[int]] = ..., field_h: _Optional[_Iterable[int]] = ..., field_w: _Optional[_Iterable[int]] = ..., fg_threshold: _Optional[float] = ..., ignore_fg_threshold: _Optional[float] = ..., resize_width: _Optional[int] = ..., resize_height: _Optional[int] = ..., crop_width: _Optional[int] = ..., crop_height: _Optional[int] = ..., min_scale: _Optional[float] = ..., max_scale: _Optional[float] = ..., multiscale_prob: _Optional[float] = ..., min_whaspect: _Optional[float] = ..., max_whaspect: _Optional[float] = ..., short_size: _Optional[int] = ..., long_size: _Optional[int] = ..., min_gt_width: _Optional[float] = ..., min_gt_height: _Optional[float] = ..., shuffle: _Optional[str] = ..., output_gt_boxes: _Optional[bool] = ..., cache_images: _Optional[bool] = ..., root_folder: _Optional[str] = ..., distort_param: _Optional[_Union[DistortionParameter, _Mapping]] = ..., resize_param: _Optional[_Union[ResizeParameter, _Mapping]] = ..., resize_ratio: _Optional[float] = ..., crop_short_size: _Optional[int] = ..., crop_long_size: _Optional[int] = ..., low_scale_ratio: _Optional[float] = ..., high_scale_ratio: _Optional[float] = ..., anchor_ignore_margin_ratio: _Optional[float] = ..., anchor_ignore_iou_thr: _Optional[float] = ..., pickup_iou_thr: _Optional[float] = ..., mix_group_size: _Optional[int] = ..., template_ratio: _Optional[_Iterable[float]] = ...) -> None: ...

class DetectionEvaluateParameter(_message.Message):
    __slots__ = ("num_classes", "background_label_id", "overlap_threshold", "evaluate_difficult_gt", "name_size_file", "resize_param")
    NUM_CLASSES_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_LABEL_ID_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    EVALUATE_DIFFICULT_GT_FIELD_NUMBER: _ClassVar[int]
    NAME_SIZE_FILE_FIELD_NUMBER: _ClassVar[int]
    RESIZE_PARAM_FIELD_NUMBER: _ClassVar[int]
    num_classes: int
    background_label_id: int
    overlap_threshold: float
    evaluate_difficult_gt: bool
    name_size_file: str
    resize_param: ResizeParameter
    def __init__(self, num_classes: _Optional[int] = ..., background_label_id: _Optional[int] = ..., overlap_threshold: _Optional[float] = ..., evaluate_difficult_gt: _Optional[bool] = ..., name_size_file: _Optional[str] = ..., resize_param: _Optional[_Union[ResizeParameter, _Mapping]] = ...) -> None: ...

class DetectionGroupAccuracyParameter(_message.Message):
    __slots__ = ("cls_num", "field_h", "field_w", "stride", "field_whr", "field_xyr", "bg_threshold", "objectness")
    CLS_NUM_FIELD_NUMBER: _ClassVar[int]
    FIELD_H_FIELD_NUMBER: _ClassVar[int]
    FIELD_W_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    FIELD_WHR_FIELD_NUMBER: _ClassVar[int]
    FIELD_XYR_FIELD_NUMBER: _ClassVar[int]
    BG_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    OBJECTNESS_FIELD_NUMBER: _ClassVar[int]
    cls_num: int
    field_h: _containers.RepeatedScalarFieldContainer[int]
    field_w: _containers.RepeatedScalarFieldContainer[int]
    stride: int
    field_whr: float
    field_xyr: float
    bg_threshold: float
    objectness: bool
    def __init__(self, cls_num: _Optional[int] = ..., field_h: _Optional[_Iterable[int]] = ..., field_w: _Optional[_Iterable[int]] = ..., stride: _Optional[int] = ..., field_whr: _Optional[float] = ..., field_xyr: _Optional[float] = ..., bg_threshold: _Optional[float] = ..., objectness: _Optional[bool] = ...) -> None: ...

class DetectionGroupLossParameter(_message.Message):
    __slots__ = ("cls_num", "field_h", "field_w", "stride", "field_whr", "field_xyr", "bg_threshold", "bg_multiple", "neg_mining_type", "neg_ranking_type", "min_num_neg", "objectness", "batch_size", "pos_neg_weighted", "bbox_loss_type")
    CLS_NUM_FIELD_NUMBER: _ClassVar[int]
    LAMBDA_FIELD_NUMBER: _ClassVar[int]
    FIELD_H_FIELD_NUMBER: _ClassVar[int]
    FIELD_W_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    FIELD_WHR_FIELD_NUMBER: _ClassVar[int]
    FIELD_XYR_FIELD_NUMBER: _ClassVar[int]
    BG_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    BG_MULTIPLE_FIELD_NUMBER: _ClassVar[int]
    NEG_MINING_TYPE_FIELD_NUMBER: _ClassVar[int]
    NEG_RANKING_TYPE_FIELD_NUMBER: _ClassVar[int]
    MIN_NUM_NEG_FIELD_NUMBER: _ClassVar[int]
    OBJECTNESS_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    POS_NEG_WEIGHTED_FIELD_NUMBER: _ClassVar[int]
    BBOX_LOSS_TYPE_FIELD_NUMBER: _ClassVar[int]
    cls_num: int
    field_h: _containers.RepeatedScalarFieldContainer[int]
    field_w: _containers.RepeatedScalarFieldContainer[int]
    stride: int
    field_whr: float
    field_xyr: float
    bg_threshold: float
    bg_multiple: int
    neg_mining_type: str
    neg_ranking_type: str
    min_num_neg: int
    objectness: bool
    batch_size: int
    pos_neg_weighted: bool
    bbox_loss_type: str
    def __init__(self, cls_num: _Optional[int] = ..., field_h: _Optional[_Iterable[int]] = ..., field_w: _Optional[_Iterable[int]] = ..., stride: _Optional[int] = ..., field_whr: _Optional[float] = ..., field_xyr: _Optional[float] = ..., bg_threshold: _Optional[float] = ..., bg_multiple: _Optional[int] = ..., neg_mining_type: _Optional[str] = ..., neg_ranking_type: _Optional[str] = ..., min_num_neg: _Optional[int] = ..., objectness: _Optional[bool] = ..., batch_size: _Optional[int] = ..., pos_neg_weighted: _Optional[bool] = ..., bbox_loss_type: _Optional[str] = ..., **kwargs) -> None: ...

class DetectionLossParameter(_message.Message):
    __slots__ = ("cls_num", "coord_num", "field_h", "field_w", "field_whr", "field_xyr", "downsample_rate", "bb_smooth", "bg_threshold", "bg_multiple", "sample_mode", "pos_neg_weighted", "side", "num_class", "num_object", "object_scale", "noobject_scale", "class_scale", "coord_scale", "sqrt", "constriant")
    CLS_NUM_FIELD_NUMBER: _ClassVar[int]
    COORD_NUM_FIELD_NUMBER: _ClassVar[int]
    LAMBDA_FIELD_NUMBER: _ClassVar[int]
    FIELD_H_FIELD_NUMBER: _ClassVar[int]
    FIELD_W_FIELD_NUMBER: _ClassVar[int]
    FIELD_WHR_FIELD_NUMBER: _ClassVar[int]
    FIELD_XYR_FIELD_NUMBER: _ClassVar[int]
    DOWNSAMPLE_RATE_FIELD_NUMBER: _ClassVar[int]
    BB_SMOOTH_FIELD_NUMBER: _ClassVar[int]
    BG_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    BG_MULTIPLE_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_MODE_FIELD_NUMBER: _ClassVar[int]
    POS_NEG_WEIGHTED_FIELD_NUMBER: _ClassVar[int]
    SIDE_FIELD_NUMBER: _ClassVar[int]
    NUM_CLASS_FIELD_NUMBER: _ClassVar[int]
    NUM_OBJECT_FIELD_NUMBER: _ClassVar[int]
    OBJECT_SCALE_FIELD_NUMBER: _ClassVar[int]
    NOOBJECT_SCALE_FIELD_NUMBER: _ClassVar[int]
    CLASS_SCALE_FIELD_NUMBER: _ClassVar[int]
    COORD_SCALE_FIELD_NUMBER: _ClassVar[int]
    SQRT_FIELD_NUMBER: _ClassVar[int]
    CONSTRIANT_FIELD_NUMBER: _ClassVar[int]
    cls_num: int
    coord_num: int
    field_h: int
    field_w: int
    field_whr: float
    field_xyr: float
    downsample_rate: int
    bb_smooth: bool
    bg_threshold: float
    bg_multiple: int
    sample_mode: str
    pos_neg_weighted: bool
    side: int
    num_class: int
    num_object: int
    object_scale: float
    noobject_scale: float
    class_scale: float
    coord_scale: float
    sqrt: bool
    constriant: bool
    def __init__(self, cls_num: _Optional[int] = ..., coord_num: _Optional[int] = ..., field_h: _Optional[int] = ..., field_w: _Optional[int] = ..., field_whr: _Optional[float] = ..., field_xyr: _Optional[float] = ..., downsample_rate: _Optional[int] = ..., bb_smooth: _Optional[bool] = ..., bg_threshold: _Optional[float] = ..., bg_multiple: _Optional[int] = ..., sample_mode: _Optional[str] = ..., pos_neg_weighted: _Optional[bool] = ..., side: _Optional[int] = ..., num_class: _Optional[int] = ..., num_object: _Optional[int] = ..., object_scale: _Optional[float] = ..., noobject_scale: _Optional[float] = ..., class_scale: _Optional[float] = ..., coord_scale: _Optional[float] = ..., sqrt: _Optional[bool] = ..., constriant: _Optional[bool] = ..., **kwargs) -> None: ...

class DetectionOutputParameter(_message.Message):
    __slots__ = ("num_classes", "share_location", "background_label_id", "nms_param", "save_output_param", "code_type", "keep_top_k", "variance_encoded_in_target", "confidence_threshold", "visualize", "visualize_threshold", "save_file", "objectness_score", "ratio_permute", "ratio0", "ratio1", "ratio2", "ratio3", "ratio4", "ratio5", "no_permute", "nbottom", "tflite_detection", "tflite_use_regular_nms", "max_classes_per_detection", "scale_xywh", "arm_conf_no_concat", "arm_loc_no_concat", "clip", "normalized", "input_height", "input_width")
    NUM_CLASSES_FIELD_NUMBER: _ClassVar[int]
    SHARE_LOCATION_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_LABEL_ID_FIELD_NUMBER: _ClassVar[int]
    NMS_PARAM_FIELD_NUMBER: _ClassVar[int]
    SAVE_OUTPUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    CODE_TYPE_FIELD_NUMBER: _ClassVar[int]
    KEEP_TOP_K_FIELD_NUMBER: _ClassVar[int]
    VARIANCE_ENCODED_IN_TARGET_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    VISUALIZE_FIELD_NUMBER: _ClassVar[int]
    VISUALIZE_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    SAVE_FILE_FIELD_NUMBER: _ClassVar[int]
    OBJECTNESS_SCORE_FIELD_NUMBER: _ClassVar[int]
    RATIO_PERMUTE_FIELD_NUMBER: _ClassVar[int]
    RATIO0_FIELD_NUMBER: _ClassVar[int]
    RATIO1_FIELD_NUMBER: _ClassVar[int]
    RATIO2_FIELD_NUMBER: _ClassVar[int]
    RATIO3_FIELD_NUMBER: _ClassVar[int]
    RATIO4_FIELD_NUMBER: _ClassVar[int]
    RATIO5_FIELD_NUMBER: _ClassVar[int]
    NO_PERMUTE_FIELD_NUMBER: _ClassVar[int]
    NBOTTOM_FIELD_NUMBER: _ClassVar[int]
    TFLITE_DETECTION_FIELD_NUMBER: _ClassVar[int]
    TFLITE_USE_REGULAR_NMS_FIELD_NUMBER: _ClassVar[int]
    MAX_CLASSES_PER_DETECTION_FIELD_NUMBER: _ClassVar[int]
    SCALE_XYWH_FIELD_NUMBER: _ClassVar[int]
    ARM_CONF_NO_CONCAT_FIELD_NUMBER: _ClassVar[int]
    ARM_LOC_NO_CONCAT_FIELD_NUMBER: _ClassVar[int]
    CLIP_FIELD_NUMBER: _ClassVar[int]
    NORMALIZED_FIELD_NUMBER: _ClassVar[int]
    INPUT_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    INPUT_WIDTH_FIELD_NUMBER: _ClassVar[int]
    num_classes: int
    share_location: bool
    background_label_id: int
    nms_param: NonMaximumSuppressionParameter
    save_output_param: SaveOutputParameter
    code_type: PriorBoxParameter.CodeType
    keep_top_k: int
    variance_encoded_in_target: bool
    confidence_threshold: float
    visualize: bool
    visualize_threshold: float
    save_file: str
    objectness_score: float
    ratio_permute: bool
    ratio0: int
    ratio1: int
    ratio2: int
    ratio3: int
    ratio4: int
    ratio5: int
    no_permute: bool
    nbottom: int
    tflite_detection: bool
    tflite_use_regular_nms: bool
    max_classes_per_detection: int
    scale_xywh: _containers.RepeatedScalarFieldContainer[float]
    arm_conf_no_concat: bool
    arm_loc_no_concat: bool
    clip: bool
    normalized: bool
    input_height: int
    input_width: int
    def __init__(self, num_classes: _Optional[int] = ..., share_location: _Optional[bool] = ..., background_label_id: _Optional[int] = ..., nms_param: _Optional[_Union[NonMaximumSuppressionParameter, _Mapping]] = ..., save_output_param: _Optional[_Union[SaveOutputParameter, _Mapping]] = ..., code_type: _Optional[_Union[PriorBoxParameter.CodeType, str]] = ..., keep_top_k: _Optional[int] = ..., variance_encoded_in_target: _Optional[bool] = ..., confidence_threshold: _Optional[float] = ..., visualize: _Optional[bool] = ..., visualize_threshold: _Optional[float] = ..., save_file: _Optional[str] = ..., objectness_score: _Optional[float] = ..., ratio_permute: _Optional[bool] = ..., ratio0: _Optional[int] = ..., ratio1: _Optional[int] = ..., ratio2: _Optional[int] = ..., ratio3: _Optional[int] = ..., ratio4: _Optional[int] = ..., ratio5: _Optional[int] = ..., no_permute: _Optional[bool] = ..., nbottom: _Optional[int] = ..., tflite_detection: _Optional[bool] = ..., tflite_use_regular_nms: _Optional[bool] = ..., max_classes_per_detection: _Optional[int] = ..., scale_xywh: _Optional[_Iterable[float]] = ..., arm_conf_no_concat: _Optional[bool] = ..., arm_loc_no_concat: _Optional[bool] = ..., clip: _Optional[bool] = ..., normalized: _Optional[bool] = ..., input_height: _Optional[int] = ..., input_width: _Optional[int] = ...) -> None: ...

class DistortionParameter(_message.Message):
    __slots__ = ("brightness_prob", "brightness_delta", "contrast_prob", "contrast_lower", "contrast_upper", "hue_prob", "hue_delta", "saturation_prob", "saturation_lower", "saturation_upper", "random_order_prob", "exposure_lower", "exposure_upper", "option", "active", "use_gpu", "random_seed")
    BRIGHTNESS_PROB_FIELD_NUMBER: _ClassVar[int]
    BRIGHTNESS_DELTA_FIELD_NUMBER: _ClassVar[int]
    CONTRAST_PROB_FIELD_NUMBER: _ClassVar[int]
    CONTRAST_LOWER_FIELD_NUMBER: _ClassVar[int]
    CONTRAST_UPPER_FIELD_NUMBER: _ClassVar[int]
    HUE_PROB_FIELD_NUMBER: _ClassVar[int]
    HUE_DELTA_FIELD_NUMBER: _ClassVar[int]
    SATURATION_PROB_FIELD_NUMBER: _ClassVar[int]
    SATURATION_LOWER_FIELD_NUMBER: _ClassVar[int]
    SATURATION_UPPER_FIELD_NUMBER: _ClassVar[int]
    RANDOM_ORDER_PROB_FIELD_NUMBER: _ClassVar[int]
    EXPOSURE_LOWER_FIELD_NUMBER: _ClassVar[int]
    EXPOSURE_UPPER_FIELD_NUMBER: _ClassVar[int]
    OPTION_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    USE_GPU_FIELD_NUMBER: _ClassVar[int]
    RANDOM_SEED_FIELD_NUMBER: _ClassVar[int]
    brightness_prob: float
    brightness_delta: float
    contrast_prob: float
    contrast_lower: float
    contrast_upper: float
    hue_prob: float
    hue_delta: float
    saturation_prob: float
    saturation_lower: float
    saturation_upper: float
    random_order_prob: float
    exposure_lower: float
    exposure_upper: float
    option: OptionalParameter
    active: bool
    use_gpu: bool
    random_seed: int
    def __init__(self, brightness_prob: _Optional[float] = ..., brightness_delta: _Optional[float] = ..., contrast_prob: _Optional[float] = ..., contrast_lower: _Optional[float] = ..., contrast_upper: _Optional[float] = ..., hue_prob: _Optional[float] = ..., hue_delta: _Optional[float] = ..., saturation_prob: _Optional[float] = ..., saturation_lower: _Optional[float] = ..., saturation_upper: _Optional[float] = ..., random_order_prob: _Optional[float] = ..., exposure_lower: _Optional[float] = ..., exposure_upper: _Optional[float] = ..., option: _Optional[_Union[OptionalParameter, _Mapping]] = ..., active: _Optional[bool] = ..., use_gpu: _Optional[bool] = ..., random_seed: _Optional[int] = ...) -> None: ...

class DomainTransformParameter(_message.Message):
    __slots__ = ("num_iter", "spatial_sigma", "range_sigma", "min_weight")
    NUM_ITER_FIELD_NUMBER: _ClassVar[int]
    SPATIAL_SIGMA_FIELD_NUMBER: _ClassVar[int]
    RANGE_SIGMA_FIELD_NUMBER: _ClassVar[int]
    MIN_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    num_iter: int
    spatial_sigma: float
    range_sigma: float
    min_weight: float
    def __init__(self, num_iter: _Optional[int] = ..., spatial_sigma: _Optional[float] = ..., range_sigma: _Optional[float] = ..., min_weight: _Optional[float] = ...) -> None: ...

class DownsampleParameter(_message.Message):
    __slots__ = ("top_height", "top_width")
    TOP_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    TOP_WIDTH_FIELD_NUMBER: _ClassVar[int]
    top_height: int
    top_width: int
    def __init__(self, top_height: _Optional[int] = ..., top_width: _Optional[int] = ...) -> None: ...

class EltwiseAccuracyParameter(_message.Message):
    __slots__ = ("top_k", "ignore_label")
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    IGNORE_LABEL_FIELD_NUMBER: _ClassVar[int]
    top_k: int
    ignore_label: int
    def __init__(self, top_k: _Optional[int] = ..., ignore_label: _Optional[int] = ...) -> None: ...

class EltwiseAffineParameter(_message.Message):
    __slots__ = ("slope_filler", "bias_filler", "channel_shared")
    SLOPE_FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_SHARED_FIELD_NUMBER: _ClassVar[int]
    slope_filler: FillerParameter
    bias_filler: FillerParameter
    channel_shared: bool
    def __init__(self, slope_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., channel_shared: _Optional[bool] = ...) -> None: ...

class EmbeddingLookupParameter(_message.Message):
    __slots__ = ("ids", "ids_shape", "partition_strategy", "max_norm")
    IDS_FIELD_NUMBER: _ClassVar[int]
    IDS_SHAPE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_STRATEGY_FIELD_NUMBER: _ClassVar[int]
    MAX_NORM_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    ids_shape: _containers.RepeatedScalarFieldContainer[int]
    partition_strategy: str
    max_norm: float
    def __init__(self, ids: _Optional[_Iterable[int]] = ..., ids_shape: _Optional[_Iterable[int]] = ..., partition_strategy: _Optional[str] = ..., max_norm: _Optional[float] = ...) -> None: ...

class EmbeddingLookupSparseParameter(_message.Message):
    __slots__ = ("ids_indices", "ids_values", "ids_shape", "weight_values", "partition_strategy", "combiner", "max_norm")
    IDS_INDICES_FIELD_NUMBER: _ClassVar[int]
    IDS_VALUES_FIELD_NUMBER: _ClassVar[int]
    IDS_SHAPE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_VALUES_FIELD_NUMBER: _ClassVar[int]
    PARTITION_STRATEGY_FIELD_NUMBER: _ClassVar[int]
    COMBINER_FIELD_NUMBER: _ClassVar[int]
    MAX_NORM_FIELD_NUMBER: _ClassVar[int]
    ids_indices: _containers.RepeatedScalarFieldContainer[int]
    ids_values: _containers.RepeatedScalarFieldContainer[int]
    ids_shape: _containers.RepeatedScalarFieldContainer[int]
    weight_values: _containers.RepeatedScalarFieldContainer[float]
    partition_strategy: str
    combiner: str
    max_norm: float
    def __init__(self, ids_indices: _Optional[_Iterable[int]] = ..., ids_values: _Optional[_Iterable[int]] = ..., ids_shape: _Optional[_Iterable[int]] = ..., weight_values: _Optional[_Iterable[float]] = ..., partition_strategy: _Optional[str] = ..., combiner: _Optional[str] = ..., max_norm: _Optional[float] = ...) -> None: ...

class EmitConstraint(_message.Message):
    __slots__ = ("emit_type", "emit_overlap", "option", "active")
    class EmitType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CENTER: _ClassVar[EmitConstraint.EmitType]
        MIN_OVERLAP: _ClassVar[EmitConstraint.EmitType]
    CENTER: EmitConstraint.EmitType
    MIN_OVERLAP: EmitConstraint.EmitType
    EMIT_TYPE_FIELD_NUMBER: _ClassVar[int]
    EMIT_OVERLAP_FIELD_NUMBER: _ClassVar[int]
    OPTION_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    emit_type: EmitConstraint.EmitType
    emit_overlap: float
    option: OptionalParameter
    active: bool
    def __init__(self, emit_type: _Optional[_Union[EmitConstraint.EmitType, str]] = ..., emit_overlap: _Optional[float] = ..., option: _Optional[_Union[OptionalParameter, _Mapping]] = ..., active: _Optional[bool] = ...) -> None: ...

class EvalDataParameter(_message.Message):
    __slots__ = ("source", "scale", "batch_size", "resize_width", "resize_height", "short_size", "long_size", "root_folder")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    RESIZE_WIDTH_FIELD_NUMBER: _ClassVar[int]
    RESIZE_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    SHORT_SIZE_FIELD_NUMBER: _ClassVar[int]
    LONG_SIZE_FIELD_NUMBER: _ClassVar[int]
    ROOT_FOLDER_FIELD_NUMBER: _ClassVar[int]
    source: str
    scale: float
    batch_size: int
    resize_width: int
    resize_height: int
    short_size: int
    long_size: int
    root_folder: str
    def __init__(self, source: _Optional[str] = ..., scale: _Optional[float] = ..., batch_size: _Optional[int] = ..., resize_width: _Optional[int] = ..., resize_height: _Optional[int] = ..., short_size: _Optional[int] = ..., long_size: _Optional[int] = ..., root_folder: _Optional[str] = ...) -> None: ...

class EvalDetectionParameter(_message.Message):
    __slots__ = ("side", "num_class", "num_object", "threshold", "sqrt", "constriant", "score_type", "nms", "biases")
    class ScoreType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OBJ: _ClassVar[EvalDetectionParameter.ScoreType]
        PROB: _ClassVar[EvalDetectionParameter.ScoreType]
        MULTIPLY: _ClassVar[EvalDetectionParameter.ScoreType]
    OBJ: EvalDetectionParameter.ScoreType
    PROB: EvalDetectionParameter.ScoreType
    MULTIPLY: EvalDetectionParameter.ScoreType
    SIDE_FIELD_NUMBER: _ClassVar[int]
    NUM_CLASS_FIELD_NUMBER: _ClassVar[int]
    NUM_OBJECT_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    SQRT_FIELD_NUMBER: _ClassVar[int]
    CONSTRIANT_FIELD_NUMBER: _ClassVar[int]
    SCORE_TYPE_FIELD_NUMBER: _ClassVar[int]
    NMS_FIELD_NUMBER: _ClassVar[int]
    BIASES_FIELD_NUMBER: _ClassVar[int]
    side: int
    num_class: int
    num_object: int
    threshold: float
    sqrt: bool
    constriant: bool
    score_type: EvalDetectionParameter.ScoreType
    nms: float
    biases: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, side: _Optional[int] = ..., num_class: _Optional[int] = ..., num_object: _Optional[int] = ..., threshold: _Optional[float] = ..., sqrt: _Optional[bool] = ..., constriant: _Optional[bool] = ..., score_type: _Optional[_Union[EvalDetectionParameter.ScoreType, str]] = ..., nms: _Optional[float] = ..., biases: _Optional[_Iterable[float]] = ...) -> None: ...

class ExpandDimsNDParameter(_message.Message):
    __slots__ = ("axis",)
    AXIS_FIELD_NUMBER: _ClassVar[int]
    axis: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, axis: _Optional[_Iterable[int]] = ...) -> None: ...

class ExpansionParameter(_message.Message):
    __slots__ = ("prob", "max_expand_ratio", "option", "active")
    PROB_FIELD_NUMBER: _ClassVar[int]
    MAX_EXPAND_RATIO_FIELD_NUMBER: _ClassVar[int]
    OPTION_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    prob: float
    max_expand_ratio: float
    option: OptionalParameter
    active: bool
    def __init__(self, prob: _Optional[float] = ..., max_expand_ratio: _Optional[float] = ..., option: _Optional[_Union[OptionalParameter, _Mapping]] = ..., active: _Optional[bool] = ...) -> None: ...

class FCNDataParameter(_message.Message):
    __slots__ = ("template_h", "template_w", "expand_left", "expand_right", "expand_top", "expand_bottom", "roi_multiply_h", "roi_multiply_w", "scale_step", "scale_step_num", "gaussian_size_h", "gaussian_size_w", "gaussian_std_h", "gaussian_std_w", "use_hog", "hog_cell_size", "min_iou")
    TEMPLATE_H_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_W_FIELD_NUMBER: _ClassVar[int]
    EXPAND_LEFT_FIELD_NUMBER: _ClassVar[int]
    EXPAND_RIGHT_FIELD_NUMBER: _ClassVar[int]
    EXPAND_TOP_FIELD_NUMBER: _ClassVar[int]
    EXPAND_BOTTOM_FIELD_NUMBER: _ClassVar[int]
    ROI_MULTIPLY_H_FIELD_NUMBER: _ClassVar[int]
    ROI_MULTIPLY_W_FIELD_NUMBER: _ClassVar[int]
    SCALE_STEP_FIELD_NUMBER: _ClassVar[int]
    SCALE_STEP_NUM_FIELD_NUMBER: _ClassVar[int]
    GAUSSIAN_SIZE_H_FIELD_NUMBER: _ClassVar[int]
    GAUSSIAN_SIZE_W_FIELD_NUMBER: _ClassVar[int]
    GAUSSIAN_STD_H_FIELD_NUMBER: _ClassVar[int]
    GAUSSIAN_STD_W_FIELD_NUMBER: _ClassVar[int]
    USE_HOG_FIELD_NUMBER: _ClassVar[int]
    HOG_CELL_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIN_IOU_FIELD_NUMBER: _ClassVar[int]
    template_h: int
    template_w: int
    expand_left: float
    expand_right: float
    expand_top: float
    expand_bottom: float
    roi_multiply_h: float
    roi_multiply_w: float
    scale_step: float
    scale_step_num: int
    gaussian_size_h: int
    gaussian_size_w: int
    gaussian_std_h: float
    gaussian_std_w: float
    use_hog: bool
    hog_cell_size: int
    min_iou: float
    def __init__(self, template_h: _Optional[int] = ..., template_w: _Optional[int] = ..., expand_left: _Optional[float] = ..., expand_right: _Optional[float] = ..., expand_top: _Optional[float] = ..., expand_bottom: _Optional[float] = ..., roi_multiply_h: _Optional[float] = ..., roi_multiply_w: _Optional[float] = ..., scale_step: _Optional[float] = ..., scale_step_num: _Optional[int] = ..., gaussian_size_h: _Optional[int] = ..., gaussian_size_w: _Optional[int] = ..., gaussian_std_h: _Optional[float] = ..., gaussian_std_w: _Optional[float] = ..., use_hog: _Optional[bool] = ..., hog_cell_size: _Optional[int] = ..., min_iou: _Optional[float] = ...) -> None: ...

class FeatureDecayLossParameter(_message.Message):
    __slots__ = ("decay_threshold", "force_decay")
    DECAY_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    FORCE_DECAY_FIELD_NUMBER: _ClassVar[int]
    decay_threshold: float
    force_decay: bool
    def __init__(self, decay_threshold: _Optional[float] = ..., force_decay: _Optional[bool] = ...) -> None: ...

class FlipParameter(_message.Message):
    __slots__ = ("flip_width", "flip_height")
    FLIP_WIDTH_FIELD_NUMBER: _ClassVar[int]
    FLIP_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    flip_width: bool
    flip_height: bool
    def __init__(self, flip_width: _Optional[bool] = ..., flip_height: _Optional[bool] = ...) -> None: ...

class FlowWarpParameter(_message.Message):
    __slots__ = ("fill_value",)
    class FillParameter(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ZERO: _ClassVar[FlowWarpParameter.FillParameter]
        NOT_A_NUMBER: _ClassVar[FlowWarpParameter.FillParameter]
    ZERO: FlowWarpParameter.FillParameter
    NOT_A_NUMBER: FlowWarpParameter.FillParameter
    FILL_VALUE_FIELD_NUMBER: _ClassVar[int]
    fill_value: FlowWarpParameter.FillParameter
    def __init__(self, fill_value: _Optional[_Union[FlowWarpParameter.FillParameter, str]] = ...) -> None: ...

class FocalLossParameter(_message.Message):
    __slots__ = ("type", "gamma", "alpha", "beta")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ORIGIN: _ClassVar[FocalLossParameter.Type]
        LINEAR: _ClassVar[FocalLossParameter.Type]
        ONEADDP: _ClassVar[FocalLossParameter.Type]
    ORIGIN: FocalLossParameter.Type
    LINEAR: FocalLossParameter.Type
    ONEADDP: FocalLossParameter.Type
    TYPE_FIELD_NUMBER: _ClassVar[int]
    GAMMA_FIELD_NUMBER: _ClassVar[int]
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    BETA_FIELD_NUMBER: _ClassVar[int]
    type: FocalLossParameter.Type
    gamma: float
    alpha: float
    beta: float
    def __init__(self, type: _Optional[_Union[FocalLossParameter.Type, str]] = ..., gamma: _Optional[float] = ..., alpha: _Optional[float] = ..., beta: _Optional[float] = ...) -> None: ...

class FrcnnOutputParameter(_message.Message):
    __slots__ = ("conf_thr", "iou_thr", "nms_type", "max_det_num", "save_output_param")
    CONF_THR_FIELD_NUMBER: _ClassVar[int]
    IOU_THR_FIELD_NUMBER: _ClassVar[int]
    NMS_TYPE_FIELD_NUMBER: _ClassVar[int]
    MAX_DET_NUM_FIELD_NUMBER: _ClassVar[int]
    SAVE_OUTPUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    conf_thr: float
    iou_thr: float
    nms_type: str
    max_det_num: int
    save_output_param: SaveOutputParameter
    def __init__(self, conf_thr: _Optional[float] = ..., iou_thr: _Optional[float] = ..., nms_type: _Optional[str] = ..., max_det_num: _Optional[int] = ..., save_output_param: _Optional[_Union[SaveOutputParameter, _Mapping]] = ...) -> None: ...

class GANLossParameter(_message.Message):
    __slots__ = ("dis_iter", "gen_iter", "dis_lossweight", "gen_lossweight", "simple_genloss", "k_lr", "equilibrium", "nothing")
    DIS_ITER_FIELD_NUMBER: _ClassVar[int]
    GEN_ITER_FIELD_NUMBER: _ClassVar[int]
    DIS_LOSSWEIGHT_FIELD_NUMBER: _ClassVar[int]
    GEN_LOSSWEIGHT_FIELD_NUMBER: _ClassVar[int]
    SIMPLE_GENLOSS_FIELD_NUMBER: _ClassVar[int]
    K_LR_FIELD_NUMBER: _ClassVar[int]
    EQUILIBRIUM_FIELD_NUMBER: _ClassVar[int]
    NOTHING_FIELD_NUMBER: _ClassVar[int]
    dis_iter: int
    gen_iter: int
    dis_lossweight: float
    gen_lossweight: float
    simple_genloss: bool
    k_lr: float
    equilibrium: float
    nothing: bool
    def __init__(self, dis_iter: _Optional[int] = ..., gen_iter: _Optional[int] = ..., dis_lossweight: _Optional[float] = ..., gen_lossweight: _Optional[float] = ..., simple_genloss: _Optional[bool] = ..., k_lr: _Optional[float] = ..., equilibrium: _Optional[float] = ..., nothing: _Optional[bool] = ...) -> None: ...

class GatherNDParameter(_message.Message):
    __slots__ = ("indices", "indices_shape")
    INDICES_FIELD_NUMBER: _ClassVar[int]
    INDICES_SHAPE_FIELD_NUMBER: _ClassVar[int]
    indices: _containers.RepeatedScalarFieldContainer[int]
    indices_shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, indices: _Optional[_Iterable[int]] = ..., indices_shape: _Optional[_Iterable[int]] = ...) -> None: ...

class GatherParameter(_message.Message):
    __slots__ = ("indices", "shape", "axis")
    INDICES_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    indices: _containers.RepeatedScalarFieldContainer[int]
    shape: _containers.RepeatedScalarFieldContainer[int]
    axis: int
    def __init__(self, indices: _Optional[_Iterable[int]] = ..., shape: _Optional[_Iterable[int]] = ..., axis: _Optional[int] = ...) -> None: ...

class GatherV2Parameter(_message.Message):
    __slots__ = ("axis", "batch_flag")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    BATCH_FLAG_FIELD_NUMBER: _ClassVar[int]
    axis: int
    batch_flag: bool
    def __init__(self, axis: _Optional[int] = ..., batch_flag: _Optional[bool] = ...) -> None: ...

class GemmParameter(_message.Message):
    __slots__ = ("alpha", "beta", "transA", "transB")
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    BETA_FIELD_NUMBER: _ClassVar[int]
    TRANSA_FIELD_NUMBER: _ClassVar[int]
    TRANSB_FIELD_NUMBER: _ClassVar[int]
    alpha: float
    beta: float
    transA: int
    transB: int
    def __init__(self, alpha: _Optional[float] = ..., beta: _Optional[float] = ..., transA: _Optional[int] = ..., transB: _Optional[int] = ...) -> None: ...

class GeneralContrastiveParameter(_message.Message):
    __slots__ = ("positive_margin", "negative_margin", "positive_weight", "negative_weight", "normalize_negative", "positive_outlier_thresh", "square", "max_negative_only", "max_positive_only", "positive_first", "positive_upper_bound", "exp_negative_weight", "add_intra_mae", "max_negative_margin")
    POSITIVE_MARGIN_FIELD_NUMBER: _ClassVar[int]
    NEGATIVE_MARGIN_FIELD_NUMBER: _ClassVar[int]
    POSITIVE_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    NEGATIVE_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    NORMALIZE_NEGATIVE_FIELD_NUMBER: _ClassVar[int]
    POSITIVE_OUTLIER_THRESH_FIELD_NUMBER: _ClassVar[int]
    SQUARE_FIELD_NUMBER: _ClassVar[int]
    MAX_NEGATIVE_ONLY_FIELD_NUMBER: _ClassVar[int]
    MAX_POSITIVE_ONLY_FIELD_NUMBER: _ClassVar[int]
    POSITIVE_FIRST_FIELD_NUMBER: _ClassVar[int]
    POSITIVE_UPPER_BOUND_FIELD_NUMBER: _ClassVar[int]
    EXP_NEGATIVE_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    ADD_INTRA_MAE_FIELD_NUMBER: _ClassVar[int]
    MAX_NEGATIVE_MARGIN_FIELD_NUMBER: _ClassVar[int]
    positive_margin: float
    negative_margin: float
    positive_weight: float
    negative_weight: float
    normalize_negative: float
    positive_outlier_thresh: float
    square: bool
    max_negative_only: bool
    max_positive_only: bool
    positive_first: bool
    positive_upper_bound: float
    exp_negative_weight: bool
    add_intra_mae: bool
    max_negative_margin: float
    def __init__(self, positive_margin: _Optional[float] = ..., negative_margin: _Optional[float] = ..., positive_weight: _Optional[float] = ..., negative_weight: _Optional[float] = ..., normalize_negative: _Optional[float] = ..., positive_outlier_thresh: _Optional[float] = ..., square: _Optional[bool] = ..., max_negative_only: _Optional[bool] = ..., max_positive_only: _Optional[bool] = ..., positive_first: _Optional[bool] = ..., positive_upper_bound: _Optional[float] = ..., exp_negative_weight: _Optional[bool] = ..., add_intra_mae: _Optional[bool] = ..., max_negative_margin: _Optional[float] = ...) -> None: ...

class GeneralTripletParameter(_message.Message):
    __slots__ = ("margin", "add_center_loss", "hardest_only", "positive_first", "positive_upper_bound", "positive_weight", "negative_weight")
    MARGIN_FIELD_NUMBER: _ClassVar[int]
    ADD_CENTER_LOSS_FIELD_NUMBER: _ClassVar[int]
    HARDEST_ONLY_FIELD_NUMBER: _ClassVar[int]
    POSITIVE_FIRST_FIELD_NUMBER: _ClassVar[int]
    POSITIVE_UPPER_BOUND_FIELD_NUMBER: _ClassVar[int]
    POSITIVE_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    NEGATIVE_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    margin: float
    add_center_loss: bool
    hardest_only: bool
    positive_first: bool
    positive_upper_bound: float
    positive_weight: float
    negative_weight: float
    def __init__(self, margin: _Optional[float] = ..., add_center_loss: _Optional[bool] = ..., hardest_only: _Optional[bool] = ..., positive_first: _Optional[bool] = ..., positive_upper_bound: _Optional[float] = ..., positive_weight: _Optional[float] = ..., negative_weight: _Optional[float] = ...) -> None: ...

class HardMiningParameter(_message.Message):
    __slots__ = ("num_roi_per_image", "num_image")
    NUM_ROI_PER_IMAGE_FIELD_NUMBER: _ClassVar[int]
    NUM_IMAGE_FIELD_NUMBER: _ClassVar[int]
    num_roi_per_image: int
    num_image: int
    def __init__(self, num_roi_per_image: _Optional[int] = ..., num_image: _Optional[int] = ...) -> None: ...

class HardSigmoidParameter(_message.Message):
    __slots__ = ("alpha", "beta")
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    BETA_FIELD_NUMBER: _ClassVar[int]
    alpha: float
    beta: float
    def __init__(self, alpha: _Optional[float] = ..., beta: _Optional[float] = ...) -> None: ...

class HotspotParameter(_message.Message):
    __slots__ = ("gaussian_std", "output_height", "output_width", "data_height", "data_width", "mean_removed")
    GAUSSIAN_STD_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_WIDTH_FIELD_NUMBER: _ClassVar[int]
    DATA_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    DATA_WIDTH_FIELD_NUMBER: _ClassVar[int]
    MEAN_REMOVED_FIELD_NUMBER: _ClassVar[int]
    gaussian_std: float
    output_height: int
    output_width: int
    data_height: int
    data_width: int
    mean_removed: bool
    def __init__(self, gaussian_std: _Optional[float] = ..., output_height: _Optional[int] = ..., output_width: _Optional[int] = ..., data_height: _Optional[int] = ..., data_width: _Optional[int] = ..., mean_removed: _Optional[bool] = ...) -> None: ...

class InfimumLossParamter(_message.Message):
    __slots__ = ("infimum",)
    INFIMUM_FIELD_NUMBER: _ClassVar[int]
    infimum: float
    def __init__(self, infimum: _Optional[float] = ...) -> None: ...

class InnerDistanceParameter(_message.Message):
    __slots__ = ("num_output", "bias_term", "weight_filler", "bias_filler", "axis", "transpose", "distance_type", "normalize", "update_center_only")
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    BIAS_TERM_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    TRANSPOSE_FIELD_NUMBER: _ClassVar[int]
    DISTANCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    NORMALIZE_FIELD_NUMBER: _ClassVar[int]
    UPDATE_CENTER_ONLY_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    bias_term: bool
    weight_filler: FillerParameter
    bias_filler: FillerParameter
    axis: int
    transpose: bool
    distance_type: str
    normalize: bool
    update_center_only: bool
    def __init__(self, num_output: _Optional[int] = ..., bias_term: _Optional[bool] = ..., weight_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., axis: _Optional[int] = ..., transpose: _Optional[bool] = ..., distance_type: _Optional[str] = ..., normalize: _Optional[bool] = ..., update_center_only: _Optional[bool] = ...) -> None: ...

class ImageGtDataParameter(_message.Message):
    __slots__ = ("source", "scale", "mean_file", "batch_size", "mirror", "downsample_rate", "coord_num", "field_h", "field_w", "fg_threshold", "resize_width", "resize_height", "crop_width", "crop_height", "do_multiple_scale", "min_scale", "max_scale", "min_whaspect", "max_whaspect", "min_gt_width", "min_gt_height", "shuffle", "output_gt_boxes", "fg_img_multiple", "cache_images", "root_folder")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    MEAN_FILE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    DOWNSAMPLE_RATE_FIELD_NUMBER: _ClassVar[int]
    COORD_NUM_FIELD_NUMBER: _ClassVar[int]
    FIELD_H_FIELD_NUMBER: _ClassVar[int]
    FIELD_W_FIELD_NUMBER: _ClassVar[int]
    FG_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    RESIZE_WIDTH_FIELD_NUMBER: _ClassVar[int]
    RESIZE_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    CROP_WIDTH_FIELD_NUMBER: _ClassVar[int]
    CROP_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    DO_MULTIPLE_SCALE_FIELD_NUMBER: _ClassVar[int]
    MIN_SCALE_FIELD_NUMBER: _ClassVar[int]
    MAX_SCALE_FIELD_NUMBER: _ClassVar[int]
    MIN_WHASPECT_FIELD_NUMBER: _ClassVar[int]
    MAX_WHASPECT_FIELD_NUMBER: _ClassVar[int]
    MIN_GT_WIDTH_FIELD_NUMBER: _ClassVar[int]
    MIN_GT_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_GT_BOXES_FIELD_NUMBER: _ClassVar[int]
    FG_IMG_MULTIPLE_FIELD_NUMBER: _ClassVar[int]
    CACHE_IMAGES_FIELD_NUMBER: _ClassVar[int]
    ROOT_FOLDER_FIELD_NUMBER: _ClassVar[int]
    source: str
    scale: float
    mean_file: str
    batch_size: int
    mirror: bool
    downsample_rate: _containers.RepeatedScalarFieldContainer[int]
    coord_num: int
    field_h: _containers.RepeatedScalarFieldContainer[int]
    field_w: _containers.RepeatedScalarFieldContainer[int]
    fg_threshold: float
    resize_width: int
    resize_height: int
    crop_width: int
    crop_height: int
    do_multiple_scale: bool
    min_scale: int
    max_scale: int
    min_whaspect: float
    max_whaspect: float
    min_gt_width: float
    min_gt_height: float
    shuffle: bool
    output_gt_boxes: bool
    fg_img_multiple: int
    cache_images: bool
    root_folder: str
    def __init__(self, source: _Optional[str] = ..., scale: _Optional[float] = ..., mean_file: _Optional[str] = ..., batch_size: _Optional[int] = ..., mirror: _Optional[bool] = ..., downsample_rate: _Optional[_Iterable[int]] = ..., coord_num: _Optional[int] = ..., field_h: _Optional[_Iterable[int]] = ..., field_w: _Optional[_Iterable[int]] = ..., fg_threshold: _Optional[float] = ..., resize_width: _Optional[int] = ..., resize_height: _Optional[int] = ..., crop_width: _Optional[int] = ..., crop_height: _Optional[int] = ..., do_multiple_scale: _Optional[bool] = ..., min_scale: _Optional[int] = ..., max_scale: _Optional[int] = ..., min_whaspect: _Optional[float] = ..., max_whaspect: _Optional[float] = ..., min_gt_width: _Optional[float] = ..., min_gt_height: _Optional[float] = ..., shuffle: _Optional[bool] = ..., output_gt_boxes: _Optional[bool] = ..., fg_img_multiple: _Optional[int] = ..., cache_images: _Optional[bool] = ..., root_folder: _Optional[str] = ...) -> None: ...

class InsanityParameter(_message.Message):
    __slots__ = ("lb", "ub")
    LB_FIELD_NUMBER: _ClassVar[int]
    UB_FIELD_NUMBER: _ClassVar[int]
    lb: float
    ub: float
    def __init__(self, lb: _Optional[float] = ..., ub: _Optional[float] = ...) -> None: ...

class InterpParameter(_message.Message):
    __slots__ = ("height", "width", "zoom_factor", "shrink_factor", "pad_beg", "pad_end", "full_zoom_factor")
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    ZOOM_FACTOR_FIELD_NUMBER: _ClassVar[int]
    SHRINK_FACTOR_FIELD_NUMBER: _ClassVar[int]
    PAD_BEG_FIELD_NUMBER: _ClassVar[int]
    PAD_END_FIELD_NUMBER: _ClassVar[int]
    FULL_ZOOM_FACTOR_FIELD_NUMBER: _ClassVar[int]
    height: int
    width: int
    zoom_factor: int
    shrink_factor: int
    pad_beg: int
    pad_end: int
    full_zoom_factor: int
    def __init__(self, height: _Optional[int] = ..., width: _Optional[int] = ..., zoom_factor: _Optional[int] = ..., shrink_factor: _Optional[int] = ..., pad_beg: _Optional[int] = ..., pad_end: _Optional[int] = ..., full_zoom_factor: _Optional[int] = ...) -> None: ...

class L1LossParameter(_message.Message):
    __slots__ = ("l2_per_location", "l2_prescale_by_channels", "normalize_by_num_entries", "epsilon", "plateau")
    L2_PER_LOCATION_FIELD_NUMBER: _ClassVar[int]
    L2_PRESCALE_BY_CHANNELS_FIELD_NUMBER: _ClassVar[int]
    NORMALIZE_BY_NUM_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    PLATEAU_FIELD_NUMBER: _ClassVar[int]
    l2_per_location: bool
    l2_prescale_by_channels: bool
    normalize_by_num_entries: bool
    epsilon: float
    plateau: float
    def __init__(self, l2_per_location: _Optional[bool] = ..., l2_prescale_by_channels: _Optional[bool] = ..., normalize_by_num_entries: _Optional[bool] = ..., epsilon: _Optional[float] = ..., plateau: _Optional[float] = ...) -> None: ...

class LabelMap(_message.Message):
    __slots__ = ("item",)
    ITEM_FIELD_NUMBER: _ClassVar[int]
    item: _containers.RepeatedCompositeFieldContainer[LabelMapItem]
    def __init__(self, item: _Optional[_Iterable[_Union[LabelMapItem, _Mapping]]] = ...) -> None: ...

class LabelMapItem(_message.Message):
    __slots__ = ("name", "label", "display_name")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    label: int
    display_name: str
    def __init__(self, name: _Optional[str] = ..., label: _Optional[int] = ..., display_name: _Optional[str] = ...) -> None: ...

class LabelSpecificAddParameter(_message.Message):
    __slots__ = ("bias", "transform_test", "bias_base", "bias_gamma", "bias_power", "bias_min", "bias_max", "iteration")
    BIAS_FIELD_NUMBER: _ClassVar[int]
    TRANSFORM_TEST_FIELD_NUMBER: _ClassVar[int]
    BIAS_BASE_FIELD_NUMBER: _ClassVar[int]
    BIAS_GAMMA_FIELD_NUMBER: _ClassVar[int]
    BIAS_POWER_FIELD_NUMBER: _ClassVar[int]
    BIAS_MIN_FIELD_NUMBER: _ClassVar[int]
    BIAS_MAX_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    bias: float
    transform_test: bool
    bias_base: float
    bias_gamma: float
    bias_power: float
    bias_min: float
    bias_max: float
    iteration: int
    def __init__(self, bias: _Optional[float] = ..., transform_test: _Optional[bool] = ..., bias_base: _Optional[float] = ..., bias_gamma: _Optional[float] = ..., bias_power: _Optional[float] = ..., bias_min: _Optional[float] = ..., bias_max: _Optional[float] = ..., iteration: _Optional[int] = ...) -> None: ...

class LabelSpecificAffineParameter(_message.Message):
    __slots__ = ("scale_base", "scale_gamma", "scale_power", "scale_max", "transform_test", "iteration", "bias_base", "bias_gamma", "bias_power", "bias_max", "power_base", "power_gamma", "power_power", "power_min", "auto_tune", "reset")
    SCALE_BASE_FIELD_NUMBER: _ClassVar[int]
    SCALE_GAMMA_FIELD_NUMBER: _ClassVar[int]
    SCALE_POWER_FIELD_NUMBER: _ClassVar[int]
    SCALE_MAX_FIELD_NUMBER: _ClassVar[int]
    TRANSFORM_TEST_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    BIAS_BASE_FIELD_NUMBER: _ClassVar[int]
    BIAS_GAMMA_FIELD_NUMBER: _ClassVar[int]
    BIAS_POWER_FIELD_NUMBER: _ClassVar[int]
    BIAS_MAX_FIELD_NUMBER: _ClassVar[int]
    POWER_BASE_FIELD_NUMBER: _ClassVar[int]
    POWER_GAMMA_FIELD_NUMBER: _ClassVar[int]
    POWER_POWER_FIELD_NUMBER: _ClassVar[int]
    POWER_MIN_FIELD_NUMBER: _ClassVar[int]
    AUTO_TUNE_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    scale_base: float
    scale_gamma: float
    scale_power: float
    scale_max: float
    transform_test: bool
    iteration: int
    bias_base: float
    bias_gamma: float
    bias_power: float
    bias_max: float
    power_base: float
    power_gamma: float
    power_power: float
    power_min: float
    auto_tune: bool
    reset: bool
    def __init__(self, scale_base: _Optional[float] = ..., scale_gamma: _Optional[float] = ..., scale_power: _Optional[float] = ..., scale_max: _Optional[float] = ..., transform_test: _Optional[bool] = ..., iteration: _Optional[int] = ..., bias_base: _Optional[float] = ..., bias_gamma: _Optional[float] = ..., bias_power: _Optional[float] = ..., bias_max: _Optional[float] = ..., power_base: _Optional[float] = ..., power_gamma: _Optional[float] = ..., power_power: _Optional[float] = ..., power_min: _Optional[float] = ..., auto_tune: _Optional[bool] = ..., reset: _Optional[bool] = ...) -> None: ...

class LabelSpecificHardMarginParameter(_message.Message):
    __slots__ = ("positive_weight",)
    POSITIVE_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    positive_weight: float
    def __init__(self, positive_weight: _Optional[float] = ...) -> None: ...

class LabelSpecificMarginParameter(_message.Message):
    __slots__ = ("margin_base", "margin_max", "power", "gamma", "iteration", "reset_margin", "margin_on_test", "auto_tune", "type")
    class MarginType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        HARD: _ClassVar[LabelSpecificMarginParameter.MarginType]
        SOFT: _ClassVar[LabelSpecificMarginParameter.MarginType]
    HARD: LabelSpecificMarginParameter.MarginType
    SOFT: LabelSpecificMarginParameter.MarginType
    MARGIN_BASE_FIELD_NUMBER: _ClassVar[int]
    MARGIN_MAX_FIELD_NUMBER: _ClassVar[int]
    POWER_FIELD_NUMBER: _ClassVar[int]
    GAMMA_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    RESET_MARGIN_FIELD_NUMBER: _ClassVar[int]
    MARGIN_ON_TEST_FIELD_NUMBER: _ClassVar[int]
    AUTO_TUNE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    margin_base: float
    margin_max: float
    power: float
    gamma: float
    iteration: int
    reset_margin: bool
    margin_on_test: bool
    auto_tune: bool
    type: LabelSpecificMarginParameter.MarginType
    def __init__(self, margin_base: _Optional[float] = ..., margin_max: _Optional[float] = ..., power: _Optional[float] = ..., gamma: _Optional[float] = ..., iteration: _Optional[int] = ..., reset_margin: _Optional[bool] = ..., margin_on_test: _Optional[bool] = ..., auto_tune: _Optional[bool] = ..., type: _Optional[_Union[LabelSpecificMarginParameter.MarginType, str]] = ...) -> None: ...

class LabelSpecificRescaleParameter(_message.Message):
    __slots__ = ("positive_weight", "negative_weight", "positive_lower_bound", "negative_upper_bound", "rescale_test", "for_ip", "positive_weight_base", "gamma", "power", "positive_weight_min", "positive_weight_max", "iteration", "bias_fix", "power_on_positive")
    POSITIVE_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    NEGATIVE_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    POSITIVE_LOWER_BOUND_FIELD_NUMBER: _ClassVar[int]
    NEGATIVE_UPPER_BOUND_FIELD_NUMBER: _ClassVar[int]
    RESCALE_TEST_FIELD_NUMBER: _ClassVar[int]
    FOR_IP_FIELD_NUMBER: _ClassVar[int]
    POSITIVE_WEIGHT_BASE_FIELD_NUMBER: _ClassVar[int]
    GAMMA_FIELD_NUMBER: _ClassVar[int]
    POWER_FIELD_NUMBER: _ClassVar[int]
    POSITIVE_WEIGHT_MIN_FIELD_NUMBER: _ClassVar[int]
    POSITIVE_WEIGHT_MAX_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    BIAS_FIX_FIELD_NUMBER: _ClassVar[int]
    POWER_ON_POSITIVE_FIELD_NUMBER: _ClassVar[int]
    positive_weight: float
    negative_weight: float
    positive_lower_bound: float
    negative_upper_bound: float
    rescale_test: bool
    for_ip: bool
    positive_weight_base: float
    gamma: float
    power: float
    positive_weight_min: float
    positive_weight_max: float
    iteration: int
    bias_fix: bool
    power_on_positive: bool
    def __init__(self, positive_weight: _Optional[float] = ..., negative_weight: _Optional[float] = ..., positive_lower_bound: _Optional[float] = ..., negative_upper_bound: _Optional[float] = ..., rescale_test: _Optional[bool] = ..., for_ip: _Optional[bool] = ..., positive_weight_base: _Optional[float] = ..., gamma: _Optional[float] = ..., power: _Optional[float] = ..., positive_weight_min: _Optional[float] = ..., positive_weight_max: _Optional[float] = ..., iteration: _Optional[int] = ..., bias_fix: _Optional[bool] = ..., power_on_positive: _Optional[bool] = ...) -> None: ...

class LabelSpecificStatisticsParameter(_message.Message):
    __slots__ = ("scale_for_angle", "scale_factor")
    SCALE_FOR_ANGLE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FACTOR_FIELD_NUMBER: _ClassVar[int]
    scale_for_angle: bool
    scale_factor: float
    def __init__(self, scale_for_angle: _Optional[bool] = ..., scale_factor: _Optional[float] = ...) -> None: ...

class LaneInfo(_message.Message):
    __slots__ = ("x", "y", "id")
    X_FIELD_NUMBER: _ClassVar[int]
    Y_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    x: float
    y: float
    id: int
    def __init__(self, x: _Optional[float] = ..., y: _Optional[float] = ..., id: _Optional[int] = ...) -> None: ...

class LargeMarginInnerProductParameter(_message.Message):
    __slots__ = ("num_output", "type", "weight_filler", "axis", "base", "gamma", "power", "iteration", "lambda_min")
    class LargeMarginType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SINGLE: _ClassVar[LargeMarginInnerProductParameter.LargeMarginType]
        DOUBLE: _ClassVar[LargeMarginInnerProductParameter.LargeMarginType]
        TRIPLE: _ClassVar[LargeMarginInnerProductParameter.LargeMarginType]
        QUADRUPLE: _ClassVar[LargeMarginInnerProductParameter.LargeMarginType]
    SINGLE: LargeMarginInnerProductParameter.LargeMarginType
    DOUBLE: LargeMarginInnerProductParameter.LargeMarginType
    TRIPLE: LargeMarginInnerProductParameter.LargeMarginType
    QUADRUPLE: LargeMarginInnerProductParameter.LargeMarginType
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FILLER_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    GAMMA_FIELD_NUMBER: _ClassVar[int]
    POWER_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    LAMBDA_MIN_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    type: LargeMarginInnerProductParameter.LargeMarginType
    weight_filler: FillerParameter
    axis: int
    base: float
    gamma: float
    power: float
    iteration: int
    lambda_min: float
    def __init__(self, num_output: _Optional[int] = ..., type: _Optional[_Union[LargeMarginInnerProductParameter.LargeMarginType, str]] = ..., weight_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., axis: _Optional[int] = ..., base: _Optional[float] = ..., gamma: _Optional[float] = ..., power: _Optional[float] = ..., iteration: _Optional[int] = ..., lambda_min: _Optional[float] = ...) -> None: ...

class LayerNormParameter(_message.Message):
    __slots__ = ("eps", "elementwise_affine")
    EPS_FIELD_NUMBER: _ClassVar[int]
    ELEMENTWISE_AFFINE_FIELD_NUMBER: _ClassVar[int]
    eps: float
    elementwise_affine: bool
    def __init__(self, eps: _Optional[float] = ..., elementwise_affine: _Optional[bool] = ...) -> None: ...

class LocalParameter(_message.Message):
    __slots__ = ("num_output", "bias_term", "pad", "kernel_size", "stride", "weight_filler", "bias_filler")
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    BIAS_TERM_FIELD_NUMBER: _ClassVar[int]
    PAD_FIELD_NUMBER: _ClassVar[int]
    KERNEL_SIZE_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    bias_term: bool
    pad: int
    kernel_size: int
    stride: int
    weight_filler: FillerParameter
    bias_filler: FillerParameter
    def __init__(self, num_output: _Optional[int] = ..., bias_term: _Optional[bool] = ..., pad: _Optional[int] = ..., kernel_size: _Optional[int] = ..., stride: _Optional[int] = ..., weight_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ...) -> None: ...

class LogSoftmaxParameter(_message.Message):
    __slots__ = ("axis",)
    AXIS_FIELD_NUMBER: _ClassVar[int]
    axis: int
    def __init__(self, axis: _Optional[int] = ...) -> None: ...

class LpNormalizationParameter(_message.Message):
    __slots__ = ("axis", "p")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    P_FIELD_NUMBER: _ClassVar[int]
    axis: _containers.RepeatedScalarFieldContainer[int]
    p: int
    def __init__(self, axis: _Optional[_Iterable[int]] = ..., p: _Optional[int] = ...) -> None: ...

class LpqLossParameter(_message.Message):
    __slots__ = ("pq_episode_starts_at_iter", "p", "q", "p_epsilon", "q_epsilon", "l2_prescale_by_channels", "normalize_by_num_entries")
    PQ_EPISODE_STARTS_AT_ITER_FIELD_NUMBER: _ClassVar[int]
    P_FIELD_NUMBER: _ClassVar[int]
    Q_FIELD_NUMBER: _ClassVar[int]
    P_EPSILON_FIELD_NUMBER: _ClassVar[int]
    Q_EPSILON_FIELD_NUMBER: _ClassVar[int]
    L2_PRESCALE_BY_CHANNELS_FIELD_NUMBER: _ClassVar[int]
    NORMALIZE_BY_NUM_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    pq_episode_starts_at_iter: _containers.RepeatedScalarFieldContainer[int]
    p: _containers.RepeatedScalarFieldContainer[float]
    q: _containers.RepeatedScalarFieldContainer[float]
    p_epsilon: float
    q_epsilon: float
    l2_prescale_by_channels: bool
    normalize_by_num_entries: bool
    def __init__(self, pq_episode_starts_at_iter: _Optional[_Iterable[int]] = ..., p: _Optional[_Iterable[float]] = ..., q: _Optional[_Iterable[float]] = ..., p_epsilon: _Optional[float] = ..., q_epsilon: _Optional[float] = ..., l2_prescale_by_channels: _Optional[bool] = ..., normalize_by_num_entries: _Optional[bool] = ...) -> None: ...

class MILDataParameter(_message.Message):
    __slots__ = ("source", "num_scales", "images_per_batch", "channels", "n_classes", "scale_factor", "label_file", "root_dir", "ext", "randomize")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    NUM_SCALES_FIELD_NUMBER: _ClassVar[int]
    IMAGES_PER_BATCH_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    N_CLASSES_FIELD_NUMBER: _ClassVar[int]
    SCALE_FACTOR_FIELD_NUMBER: _ClassVar[int]
    LABEL_FILE_FIELD_NUMBER: _ClassVar[int]
    ROOT_DIR_FIELD_NUMBER: _ClassVar[int]
    EXT_FIELD_NUMBER: _ClassVar[int]
    RANDOMIZE_FIELD_NUMBER: _ClassVar[int]
    source: str
    num_scales: int
    images_per_batch: int
    channels: int
    n_classes: int
    scale_factor: float
    label_file: str
    root_dir: str
    ext: str
    randomize: bool
    def __init__(self, source: _Optional[str] = ..., num_scales: _Optional[int] = ..., images_per_batch: _Optional[int] = ..., channels: _Optional[int] = ..., n_classes: _Optional[int] = ..., scale_factor: _Optional[float] = ..., label_file: _Optional[str] = ..., root_dir: _Optional[str] = ..., ext: _Optional[str] = ..., randomize: _Optional[bool] = ...) -> None: ...

class MILParameter(_message.Message):
    __slots__ = ("type",)
    class MILType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MAX: _ClassVar[MILParameter.MILType]
        NOR: _ClassVar[MILParameter.MILType]
    MAX: MILParameter.MILType
    NOR: MILParameter.MILType
    TYPE_FIELD_NUMBER: _ClassVar[int]
    type: MILParameter.MILType
    def __init__(self, type: _Optional[_Union[MILParameter.MILType, str]] = ...) -> None: ...

class MarginInnerProductParameter(_message.Message):
    __slots__ = ("num_output", "type", "weight_filler", "axis", "base", "gamma", "power", "iteration", "lambda_min")
    class MarginType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SINGLE: _ClassVar[MarginInnerProductParameter.MarginType]
        DOUBLE: _ClassVar[MarginInnerProductParameter.MarginType]
        TRIPLE: _ClassVar[MarginInnerProductParameter.MarginType]
        QUADRUPLE: _ClassVar[MarginInnerProductParameter.MarginType]
    SINGLE: MarginInnerProductParameter.MarginType
    DOUBLE: MarginInnerProductParameter.MarginType
    TRIPLE: MarginInnerProductParameter.MarginType
    QUADRUPLE: MarginInnerProductParameter.MarginType
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FILLER_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    GAMMA_FIELD_NUMBER: _ClassVar[int]
    POWER_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    LAMBDA_MIN_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    type: MarginInnerProductParameter.MarginType
    weight_filler: FillerParameter
    axis: int
    base: float
    gamma: float
    power: float
    iteration: int
    lambda_min: float
    def __init__(self, num_output: _Optional[int] = ..., type: _Optional[_Union[MarginInnerProductParameter.MarginType, str]] = ..., weight_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., axis: _Optional[int] = ..., base: _Optional[float] = ..., gamma: _Optional[float] = ..., power: _Optional[float] = ..., iteration: _Optional[int] = ..., lambda_min: _Optional[float] = ...) -> None: ...

class MaskRCNNDetectionParameter(_message.Message):
    __slots__ = ("bbox_std_dev", "batch_size", "detection_max_instances", "detection_min_confidence", "detection_nms_threshold")
    BBOX_STD_DEV_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    DETECTION_MAX_INSTANCES_FIELD_NUMBER: _ClassVar[int]
    DETECTION_MIN_CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    DETECTION_NMS_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    bbox_std_dev: _containers.RepeatedScalarFieldContainer[float]
    batch_size: int
    detection_max_instances: int
    detection_min_confidence: float
    detection_nms_threshold: float
    def __init__(self, bbox_std_dev: _Optional[_Iterable[float]] = ..., batch_size: _Optional[int] = ..., detection_max_instances: _Optional[int] = ..., detection_min_confidence: _Optional[float] = ..., detection_nms_threshold: _Optional[float] = ...) -> None: ...

class MaskRCNNProposalParameter(_message.Message):
    __slots__ = ("rpn_bbox_std_dev", "batch_size", "images_per_gpu", "pre_nms_limit", "rpn_nms_threshold", "post_nms_rois_inference")
    RPN_BBOX_STD_DEV_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    IMAGES_PER_GPU_FIELD_NUMBER: _ClassVar[int]
    PRE_NMS_LIMIT_FIELD_NUMBER: _ClassVar[int]
    RPN_NMS_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    POST_NMS_ROIS_INFERENCE_FIELD_NUMBER: _ClassVar[int]
    rpn_bbox_std_dev: _containers.RepeatedScalarFieldContainer[float]
    batch_size: int
    images_per_gpu: int
    pre_nms_limit: int
    rpn_nms_threshold: float
    post_nms_rois_inference: int
    def __init__(self, rpn_bbox_std_dev: _Optional[_Iterable[float]] = ..., batch_size: _Optional[int] = ..., images_per_gpu: _Optional[int] = ..., pre_nms_limit: _Optional[int] = ..., rpn_nms_threshold: _Optional[float] = ..., post_nms_rois_inference: _Optional[int] = ...) -> None: ...

class MaskResizeParameter(_message.Message):
    __slots__ = ("output_height", "output_width")
    OUTPUT_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_WIDTH_FIELD_NUMBER: _ClassVar[int]
    output_height: int
    output_width: int
    def __init__(self, output_height: _Optional[int] = ..., output_width: _Optional[int] = ...) -> None: ...

class MatMulParameter(_message.Message):
    __slots__ = ("transpose_a", "transpose_b", "blob_shape")
    TRANSPOSE_A_FIELD_NUMBER: _ClassVar[int]
    TRANSPOSE_B_FIELD_NUMBER: _ClassVar[int]
    BLOB_SHAPE_FIELD_NUMBER: _ClassVar[int]
    transpose_a: bool
    transpose_b: bool
    blob_shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, transpose_a: _Optional[bool] = ..., transpose_b: _Optional[bool] = ..., blob_shape: _Optional[_Iterable[int]] = ...) -> None: ...

class MatReadParameter(_message.Message):
    __slots__ = ("prefix", "source", "strip", "batch_size")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    STRIP_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    source: str
    strip: int
    batch_size: int
    def __init__(self, prefix: _Optional[str] = ..., source: _Optional[str] = ..., strip: _Optional[int] = ..., batch_size: _Optional[int] = ...) -> None: ...

class MatWriteParameter(_message.Message):
    __slots__ = ("prefix", "source", "strip", "period")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    STRIP_FIELD_NUMBER: _ClassVar[int]
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    source: str
    strip: int
    period: int
    def __init__(self, prefix: _Optional[str] = ..., source: _Optional[str] = ..., strip: _Optional[int] = ..., period: _Optional[int] = ...) -> None: ...

class MeanParameter(_message.Message):
    __slots__ = ("operation", "file", "value", "mean_scale", "input_scale", "output_scale")
    class MeanOperation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ADD: _ClassVar[MeanParameter.MeanOperation]
        SUBTRACT: _ClassVar[MeanParameter.MeanOperation]
    ADD: MeanParameter.MeanOperation
    SUBTRACT: MeanParameter.MeanOperation
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    MEAN_SCALE_FIELD_NUMBER: _ClassVar[int]
    INPUT_SCALE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCALE_FIELD_NUMBER: _ClassVar[int]
    operation: MeanParameter.MeanOperation
    file: str
    value: _containers.RepeatedScalarFieldContainer[float]
    mean_scale: float
    input_scale: float
    output_scale: float
    def __init__(self, operation: _Optional[_Union[MeanParameter.MeanOperation, str]] = ..., file: _Optional[str] = ..., value: _Optional[_Iterable[float]] = ..., mean_scale: _Optional[float] = ..., input_scale: _Optional[float] = ..., output_scale: _Optional[float] = ...) -> None: ...

class MemoryOptimizationParameter(_message.Message):
    __slots__ = ("optimize_train", "optimize_test", "exclude_blob")
    OPTIMIZE_TRAIN_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZE_TEST_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_BLOB_FIELD_NUMBER: _ClassVar[int]
    optimize_train: bool
    optimize_test: bool
    exclude_blob: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, optimize_train: _Optional[bool] = ..., optimize_test: _Optional[bool] = ..., exclude_blob: _Optional[_Iterable[str]] = ...) -> None: ...

class MirrorPadParameter(_message.Message):
    __slots__ = ("paddings", "constant_values", "mode")
    PADDINGS_FIELD_NUMBER: _ClassVar[int]
    CONSTANT_VALUES_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    paddings: _containers.RepeatedScalarFieldContainer[int]
    constant_values: float
    mode: str
    def __init__(self, paddings: _Optional[_Iterable[int]] = ..., constant_values: _Optional[float] = ..., mode: _Optional[str] = ...) -> None: ...

class MnActivationParameter(_message.Message):
    __slots__ = ("num_nodes_in", "num_nodes_out", "model_parts_in", "model_parts_out", "need_reduce")
    NUM_NODES_IN_FIELD_NUMBER: _ClassVar[int]
    NUM_NODES_OUT_FIELD_NUMBER: _ClassVar[int]
    MODEL_PARTS_IN_FIELD_NUMBER: _ClassVar[int]
    MODEL_PARTS_OUT_FIELD_NUMBER: _ClassVar[int]
    NEED_REDUCE_FIELD_NUMBER: _ClassVar[int]
    num_nodes_in: int
    num_nodes_out: int
    model_parts_in: int
    model_parts_out: int
    need_reduce: bool
    def __init__(self, num_nodes_in: _Optional[int] = ..., num_nodes_out: _Optional[int] = ..., model_parts_in: _Optional[int] = ..., model_parts_out: _Optional[int] = ..., need_reduce: _Optional[bool] = ...) -> None: ...

class MnModelParallelParameter(_message.Message):
    __slots__ = ("layer_from", "layer_to", "num_nodes", "model_parts")
    LAYER_FROM_FIELD_NUMBER: _ClassVar[int]
    LAYER_TO_FIELD_NUMBER: _ClassVar[int]
    NUM_NODES_FIELD_NUMBER: _ClassVar[int]
    MODEL_PARTS_FIELD_NUMBER: _ClassVar[int]
    layer_from: str
    layer_to: str
    num_nodes: int
    model_parts: int
    def __init__(self, layer_from: _Optional[str] = ..., layer_to: _Optional[str] = ..., num_nodes: _Optional[int] = ..., model_parts: _Optional[int] = ...) -> None: ...

class MnParamGradCompressLayerTypeList(_message.Message):
    __slots__ = ("layer_type",)
    LAYER_TYPE_FIELD_NUMBER: _ClassVar[int]
    layer_type: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, layer_type: _Optional[_Iterable[str]] = ...) -> None: ...

class MnParamGradCompressParameter(_message.Message):
    __slots__ = ("param_grad_compress_enable",)
    PARAM_GRAD_COMPRESS_ENABLE_FIELD_NUMBER: _ClassVar[int]
    param_grad_compress_enable: _containers.RepeatedScalarFieldContainer[bool]
    def __init__(self, param_grad_compress_enable: _Optional[_Iterable[bool]] = ...) -> None: ...

class MulParameter(_message.Message):
    __slots__ = ("mul_shape",)
    MUL_SHAPE_FIELD_NUMBER: _ClassVar[int]
    mul_shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, mul_shape: _Optional[_Iterable[int]] = ...) -> None: ...

class MultiBoxLossParameter(_message.Message):
    __slots__ = ("loc_loss_type", "conf_loss_type", "loc_weight", "num_classes", "share_location", "match_type", "overlap_threshold", "use_prior_for_matching", "background_label_id", "use_difficult_gt", "do_neg_mining", "neg_pos_ratio", "neg_overlap", "code_type", "encode_variance_in_target", "map_object_to_agnostic", "ignore_cross_boundary_bbox", "bp_inside", "mining_type", "nms_param", "sample_size", "use_prior_for_nms", "ignore_difficult_gt", "objectness_score", "use_gpu")
    class ConfLossType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SOFTMAX: _ClassVar[MultiBoxLossParameter.ConfLossType]
        LOGISTIC: _ClassVar[MultiBoxLossParameter.ConfLossType]
    SOFTMAX: MultiBoxLossParameter.ConfLossType
    LOGISTIC: MultiBoxLossParameter.ConfLossType
    class LocLossType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        L2: _ClassVar[MultiBoxLossParameter.LocLossType]
        SMOOTH_L1: _ClassVar[MultiBoxLossParameter.LocLossType]
    L2: MultiBoxLossParameter.LocLossType
    SMOOTH_L1: MultiBoxLossParameter.LocLossType
    class MatchType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        BIPARTITE: _ClassVar[MultiBoxLossParameter.MatchType]
        PER_PREDICTION: _ClassVar[MultiBoxLossParameter.MatchType]
    BIPARTITE: MultiBoxLossParameter.MatchType
    PER_PREDICTION: MultiBoxLossParameter.MatchType
    class MiningType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NONE: _ClassVar[MultiBoxLossParameter.MiningType]
        MAX_NEGATIVE: _ClassVar[MultiBoxLossParameter.MiningType]
        HARD_EXAMPLE: _ClassVar[MultiBoxLossParameter.MiningType]
    NONE: MultiBoxLossParameter.MiningType
    MAX_NEGATIVE: MultiBoxLossParameter.MiningType
    HARD_EXAMPLE: MultiBoxLossParameter.MiningType
    LOC_LOSS_TYPE_FIELD_NUMBER: _ClassVar[int]
    CONF_LOSS_TYPE_FIELD_NUMBER: _ClassVar[int]
    LOC_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    NUM_CLASSES_FIELD_NUMBER: _ClassVar[int]
    SHARE_LOCATION_FIELD_NUMBER: _ClassVar[int]
    MATCH_TYPE_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    USE_PRIOR_FOR_MATCHING_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_LABEL_ID_FIELD_NUMBER: _ClassVar[int]
    USE_DIFFICULT_GT_FIELD_NUMBER: _ClassVar[int]
    DO_NEG_MINING_FIELD_NUMBER: _ClassVar[int]
    NEG_POS_RATIO_FIELD_NUMBER: _ClassVar[int]
    NEG_OVERLAP_FIELD_NUMBER: _ClassVar[int]
    CODE_TYPE_FIELD_NUMBER: _ClassVar[int]
    ENCODE_VARIANCE_IN_TARGET_FIELD_NUMBER: _ClassVar[int]
    MAP_OBJECT_TO_AGNOSTIC_FIELD_NUMBER: _ClassVar[int]
    IGNORE_CROSS_BOUNDARY_BBOX_FIELD_NUMBER: _ClassVar[int]
    BP_INSIDE_FIELD_NUMBER: _ClassVar[int]
    MINING_TYPE_FIELD_NUMBER: _ClassVar[int]
    NMS_PARAM_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_SIZE_FIELD_NUMBER: _ClassVar[int]
    USE_PRIOR_FOR_NMS_FIELD_NUMBER: _ClassVar[int]
    IGNORE_DIFFICULT_GT_FIELD_NUMBER: _ClassVar[int]
    OBJECTNESS_SCORE_FIELD_NUMBER: _ClassVar[int]
    USE_GPU_FIELD_NUMBER: _ClassVar[int]
    loc_loss_type: MultiBoxLossParameter.LocLossType
    conf_loss_type: MultiBoxLossParameter.ConfLossType
    loc_weight: float
    num_classes: int
    share_location: bool
    match_type: MultiBoxLossParameter.MatchType
    overlap_threshold: float
    use_prior_for_matching: bool
    background_label_id: int
    use_difficult_gt: bool
    do_neg_mining: bool
    neg_pos_ratio: float
    neg_overlap: float
    code_type: PriorBoxParameter.CodeType
    encode_variance_in_target: bool
    map_object_to_agnostic: bool
    ignore_cross_boundary_bbox: bool
    bp_inside: bool
    mining_type: MultiBoxLossParameter.MiningType
    nms_param: NonMaximumSuppressionParameter
    sample_size: int
    use_prior_for_nms: bool
    ignore_difficult_gt: bool
    objectness_score: float
    use_gpu: bool
    def __init__(self, loc_loss_type: _Optional[_Union[MultiBoxLossParameter.LocLossType, str]] = ..., conf_loss_type: _Optional[_Union[MultiBoxLossParameter.ConfLossType, str]] = ..., loc_weight: _Optional[float] = ..., num_classes: _Optional[int] = ..., share_location: _Optional[bool] = ..., match_type: _Optional[_Union[MultiBoxLossParameter.MatchType, str]] = ..., overlap_threshold: _Optional[float] = ..., use_prior_for_matching: _Optional[bool] = ..., background_label_id: _Optional[int] = ..., use_difficult_gt: _Optional[bool] = ..., do_neg_mining: _Optional[bool] = ..., neg_pos_ratio: _Optional[float] = ..., neg_overlap: _Optional[float] = ..., code_type: _Optional[_Union[PriorBoxParameter.CodeType, str]] = ..., encode_variance_in_target: _Optional[bool] = ..., map_object_to_agnostic: _Optional[bool] = ..., ignore_cross_boundary_bbox: _Optional[bool] = ..., bp_inside: _Optional[bool] = ..., mining_type: _Optional[_Union[MultiBoxLossParameter.MiningType, str]] = ..., nms_param: _Optional[_Union[NonMaximumSuppressionParameter, _Mapping]] = ..., sample_size: _Optional[int] = ..., use_prior_for_nms: _Optional[bool] = ..., ignore_difficult_gt: _Optional[bool] = ..., objectness_score: _Optional[float] = ..., use_gpu: _Optional[bool] = ...) -> None: ...

class MultiPhaseSolverParameter(_message.Message):
    __slots__ = ("params_pair",)
    PARAMS_PAIR_FIELD_NUMBER: _ClassVar[int]
    params_pair: _containers.RepeatedCompositeFieldContainer[SolverBatchSizePair]
    def __init__(self, params_pair: _Optional[_Iterable[_Union[SolverBatchSizePair, _Mapping]]] = ...) -> None: ...

class MultiStageMeanfieldParameter(_message.Message):
    __slots__ = ("compatibility_mode", "threshold", "theta_alpha", "theta_beta", "theta_gamma", "num_iterations", "spatial_filter_weight", "bilateral_filter_weight")
    class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        POTTS: _ClassVar[MultiStageMeanfieldParameter.Mode]
    POTTS: MultiStageMeanfieldParameter.Mode
    COMPATIBILITY_MODE_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    THETA_ALPHA_FIELD_NUMBER: _ClassVar[int]
    THETA_BETA_FIELD_NUMBER: _ClassVar[int]
    THETA_GAMMA_FIELD_NUMBER: _ClassVar[int]
    NUM_ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    SPATIAL_FILTER_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    BILATERAL_FILTER_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    compatibility_mode: MultiStageMeanfieldParameter.Mode
    threshold: float
    theta_alpha: float
    theta_beta: float
    theta_gamma: float
    num_iterations: int
    spatial_filter_weight: float
    bilateral_filter_weight: float
    def __init__(self, compatibility_mode: _Optional[_Union[MultiStageMeanfieldParameter.Mode, str]] = ..., threshold: _Optional[float] = ..., theta_alpha: _Optional[float] = ..., theta_beta: _Optional[float] = ..., theta_gamma: _Optional[float] = ..., num_iterations: _Optional[int] = ..., spatial_filter_weight: _Optional[float] = ..., bilateral_filter_weight: _Optional[float] = ...) -> None: ...

class MultinodeLayerParameter(_message.Message):
    __slots__ = ("num_nodes", "model_parts")
    NUM_NODES_FIELD_NUMBER: _ClassVar[int]
    MODEL_PARTS_FIELD_NUMBER: _ClassVar[int]
    num_nodes: int
    model_parts: int
    def __init__(self, num_nodes: _Optional[int] = ..., model_parts: _Optional[int] = ...) -> None: ...

class MultinodeParameter(_message.Message):
    __slots__ = ("model_parallel", "compress_layer_type_list")
    MODEL_PARALLEL_FIELD_NUMBER: _ClassVar[int]
    COMPRESS_LAYER_TYPE_LIST_FIELD_NUMBER: _ClassVar[int]
    model_parallel: _containers.RepeatedCompositeFieldContainer[MnModelParallelParameter]
    compress_layer_type_list: MnParamGradCompressLayerTypeList
    def __init__(self, model_parallel: _Optional[_Iterable[_Union[MnModelParallelParameter, _Mapping]]] = ..., compress_layer_type_list: _Optional[_Union[MnParamGradCompressLayerTypeList, _Mapping]] = ...) -> None: ...

class NCAParameter(_message.Message):
    __slots__ = ("min_negative_only",)
    MIN_NEGATIVE_ONLY_FIELD_NUMBER: _ClassVar[int]
    min_negative_only: bool
    def __init__(self, min_negative_only: _Optional[bool] = ...) -> None: ...

class NMSGatherParameter(_message.Message):
    __slots__ = ("top_k", "axis", "iou_threshold")
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    IOU_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    top_k: int
    axis: int
    iou_threshold: float
    def __init__(self, top_k: _Optional[int] = ..., axis: _Optional[int] = ..., iou_threshold: _Optional[float] = ...) -> None: ...

class NMSParameter(_message.Message):
    __slots__ = ("top_k", "axis", "iou_threshold")
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    IOU_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    top_k: int
    axis: int
    iou_threshold: float
    def __init__(self, top_k: _Optional[int] = ..., axis: _Optional[int] = ..., iou_threshold: _Optional[float] = ...) -> None: ...

class NoiseParameter(_message.Message):
    __slots__ = ("prob", "hist_eq", "inverse", "decolorize", "gauss_blur", "jpeg", "posterize", "erode", "saltpepper", "saltpepper_param", "clahe", "convert_to_hsv", "convert_to_lab", "bias", "gaussian_std", "uniform_range", "option", "active")
    PROB_FIELD_NUMBER: _ClassVar[int]
    HIST_EQ_FIELD_NUMBER: _ClassVar[int]
    INVERSE_FIELD_NUMBER: _ClassVar[int]
    DECOLORIZE_FIELD_NUMBER: _ClassVar[int]
    GAUSS_BLUR_FIELD_NUMBER: _ClassVar[int]
    JPEG_FIELD_NUMBER: _ClassVar[int]
    POSTERIZE_FIELD_NUMBER: _ClassVar[int]
    ERODE_FIELD_NUMBER: _ClassVar[int]
    SALTPEPPER_FIELD_NUMBER: _ClassVar[int]
    SALTPEPPER_PARAM_FIELD_NUMBER: _ClassVar[int]
    CLAHE_FIELD_NUMBER: _ClassVar[int]
    CONVERT_TO_HSV_FIELD_NUMBER: _ClassVar[int]
    CONVERT_TO_LAB_FIELD_NUMBER: _ClassVar[int]
    BIAS_FIELD_NUMBER: _ClassVar[int]
    GAUSSIAN_STD_FIELD_NUMBER: _ClassVar[int]
    UNIFORM_RANGE_FIELD_NUMBER: _ClassVar[int]
    OPTION_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    prob: float
    hist_eq: bool
    inverse: bool
    decolorize: bool
    gauss_blur: bool
    jpeg: float
    posterize: bool
    erode: bool
    saltpepper: bool
    saltpepper_param: SaltPepperParameter
    clahe: bool
    convert_to_hsv: bool
    convert_to_lab: bool
    bias: float
    gaussian_std: float
    uniform_range: float
    option: OptionalParameter
    active: bool
    def __init__(self, prob: _Optional[float] = ..., hist_eq: _Optional[bool] = ..., inverse: _Optional[bool] = ..., decolorize: _Optional[bool] = ..., gauss_blur: _Optional[bool] = ..., jpeg: _Optional[float] = ..., posterize: _Optional[bool] = ..., erode: _Optional[bool] = ..., saltpepper: _Optional[bool] = ..., saltpepper_param: _Optional[_Union[SaltPepperParameter, _Mapping]] = ..., clahe: _Optional[bool] = ..., convert_to_hsv: _Optional[bool] = ..., convert_to_lab: _Optional[bool] = ..., bias: _Optional[float] = ..., gaussian_std: _Optional[float] = ..., uniform_range: _Optional[float] = ..., option: _Optional[_Union[OptionalParameter, _Mapping]] = ..., active: _Optional[bool] = ...) -> None: ...

class NonMaxSuppressionParameter(_message.Message):
    __slots__ = ("max_output_boxes_per_class", "iou_threshold", "score_threshold", "center_point_box")
    MAX_OUTPUT_BOXES_PER_CLASS_FIELD_NUMBER: _ClassVar[int]
    IOU_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    SCORE_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    CENTER_POINT_BOX_FIELD_NUMBER: _ClassVar[int]
    max_output_boxes_per_class: int
    iou_threshold: float
    score_threshold: float
    center_point_box: int
    def __init__(self, max_output_boxes_per_class: _Optional[int] = ..., iou_threshold: _Optional[float] = ..., score_threshold: _Optional[float] = ..., center_point_box: _Optional[int] = ...) -> None: ...

class NonMaximumSuppressionParameter(_message.Message):
    __slots__ = ("nms_threshold", "top_k", "eta", "option", "active")
    NMS_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    ETA_FIELD_NUMBER: _ClassVar[int]
    OPTION_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    nms_threshold: float
    top_k: int
    eta: float
    option: OptionalParameter
    active: bool
    def __init__(self, nms_threshold: _Optional[float] = ..., top_k: _Optional[int] = ..., eta: _Optional[float] = ..., option: _Optional[_Union[OptionalParameter, _Mapping]] = ..., active: _Optional[bool] = ...) -> None: ...

class NormalizeParameter(_message.Message):
    __slots__ = ("across_spatial", "scale_filler", "channel_shared", "eps", "add_eps_before_sqrt", "bp_norm", "fix_gradient", "normalize_type", "esp")
    ACROSS_SPATIAL_FIELD_NUMBER: _ClassVar[int]
    SCALE_FILLER_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_SHARED_FIELD_NUMBER: _ClassVar[int]
    EPS_FIELD_NUMBER: _ClassVar[int]
    ADD_EPS_BEFORE_SQRT_FIELD_NUMBER: _ClassVar[int]
    BP_NORM_FIELD_NUMBER: _ClassVar[int]
    FIX_GRADIENT_FIELD_NUMBER: _ClassVar[int]
    NORMALIZE_TYPE_FIELD_NUMBER: _ClassVar[int]
    ESP_FIELD_NUMBER: _ClassVar[int]
    across_spatial: bool
    scale_filler: FillerParameter
    channel_shared: bool
    eps: float
    add_eps_before_sqrt: bool
    bp_norm: bool
    fix_gradient: bool
    normalize_type: str
    esp: float
    def __init__(self, across_spatial: _Optional[bool] = ..., scale_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., channel_shared: _Optional[bool] = ..., eps: _Optional[float] = ..., add_eps_before_sqrt: _Optional[bool] = ..., bp_norm: _Optional[bool] = ..., fix_gradient: _Optional[bool] = ..., normalize_type: _Optional[str] = ..., esp: _Optional[float] = ...) -> None: ...

class NormalizedBBox(_message.Message):
    __slots__ = ("xmin", "ymin", "xmax", "ymax", "label", "difficult", "score", "size", "x_center", "y_center", "width", "height")
    XMIN_FIELD_NUMBER: _ClassVar[int]
    YMIN_FIELD_NUMBER: _ClassVar[int]
    XMAX_FIELD_NUMBER: _ClassVar[int]
    YMAX_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    DIFFICULT_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    X_CENTER_FIELD_NUMBER: _ClassVar[int]
    Y_CENTER_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    xmin: float
    ymin: float
    xmax: float
    ymax: float
    label: int
    difficult: bool
    score: float
    size: float
    x_center: float
    y_center: float
    width: float
    height: float
    def __init__(self, xmin: _Optional[float] = ..., ymin: _Optional[float] = ..., xmax: _Optional[float] = ..., ymax: _Optional[float] = ..., label: _Optional[int] = ..., difficult: _Optional[bool] = ..., score: _Optional[float] = ..., size: _Optional[float] = ..., x_center: _Optional[float] = ..., y_center: _Optional[float] = ..., width: _Optional[float] = ..., height: _Optional[float] = ...) -> None: ...

class NotEqualParameter(_message.Message):
    __slots__ = ("comparand",)
    COMPARAND_FIELD_NUMBER: _ClassVar[int]
    comparand: float
    def __init__(self, comparand: _Optional[float] = ...) -> None: ...

class OneHotParameter(_message.Message):
    __slots__ = ("depth", "on_value", "off_value", "axis")
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    ON_VALUE_FIELD_NUMBER: _ClassVar[int]
    OFF_VALUE_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    depth: int
    on_value: float
    off_value: float
    axis: int
    def __init__(self, depth: _Optional[int] = ..., on_value: _Optional[float] = ..., off_value: _Optional[float] = ..., axis: _Optional[int] = ...) -> None: ...

class OrdinalRegressionParameter(_message.Message):
    __slots__ = ("k", "weight_file")
    K_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FILE_FIELD_NUMBER: _ClassVar[int]
    k: int
    weight_file: str
    def __init__(self, k: _Optional[int] = ..., weight_file: _Optional[str] = ...) -> None: ...

class PSROIPoolingParameter(_message.Message):
    __slots__ = ("spatial_scale", "output_dim", "group_size")
    SPATIAL_SCALE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_DIM_FIELD_NUMBER: _ClassVar[int]
    GROUP_SIZE_FIELD_NUMBER: _ClassVar[int]
    spatial_scale: float
    output_dim: int
    group_size: int
    def __init__(self, spatial_scale: _Optional[float] = ..., output_dim: _Optional[int] = ..., group_size: _Optional[int] = ...) -> None: ...

class PadParameter(_message.Message):
    __slots__ = ("paddings", "constant_values")
    PADDINGS_FIELD_NUMBER: _ClassVar[int]
    CONSTANT_VALUES_FIELD_NUMBER: _ClassVar[int]
    paddings: _containers.RepeatedScalarFieldContainer[int]
    constant_values: float
    def __init__(self, paddings: _Optional[_Iterable[int]] = ..., constant_values: _Optional[float] = ...) -> None: ...

class PaddingParameter(_message.Message):
    __slots__ = ("pad_beg", "pad_end")
    PAD_BEG_FIELD_NUMBER: _ClassVar[int]
    PAD_END_FIELD_NUMBER: _ClassVar[int]
    pad_beg: int
    pad_end: int
    def __init__(self, pad_beg: _Optional[int] = ..., pad_end: _Optional[int] = ...) -> None: ...

class PairwiseParameter(_message.Message):
    __slots__ = ("operation", "coeff")
    class PairwiseOp(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SUM: _ClassVar[PairwiseParameter.PairwiseOp]
        PROD: _ClassVar[PairwiseParameter.PairwiseOp]
        MAX: _ClassVar[PairwiseParameter.PairwiseOp]
    SUM: PairwiseParameter.PairwiseOp
    PROD: PairwiseParameter.PairwiseOp
    MAX: PairwiseParameter.PairwiseOp
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    COEFF_FIELD_NUMBER: _ClassVar[int]
    operation: PairwiseParameter.PairwiseOp
    coeff: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, operation: _Optional[_Union[PairwiseParameter.PairwiseOp, str]] = ..., coeff: _Optional[_Iterable[float]] = ...) -> None: ...

class PermuteParameter(_message.Message):
    __slots__ = ("order",)
    ORDER_FIELD_NUMBER: _ClassVar[int]
    order: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, order: _Optional[_Iterable[int]] = ...) -> None: ...

class PieceParameter(_message.Message):
    __slots__ = ("begin", "size")
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    begin: _containers.RepeatedScalarFieldContainer[int]
    size: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, begin: _Optional[_Iterable[int]] = ..., size: _Optional[_Iterable[int]] = ...) -> None: ...

class PointNetParameter(_message.Message):
    __slots__ = ("n_sample_point", "radius")
    N_SAMPLE_POINT_FIELD_NUMBER: _ClassVar[int]
    RADIUS_FIELD_NUMBER: _ClassVar[int]
    n_sample_point: int
    radius: float
    def __init__(self, n_sample_point: _Optional[int] = ..., radius: _Optional[float] = ...) -> None: ...

class Pooling3DParameter(_message.Message):
    __slots__ = ("pool", "kernel_size", "stride", "kernel_depth", "pad_h1", "pad_w0", "pad_w1", "pad_d0", "pad_d1", "kernel_h", "kernel_w", "kernel_d", "stride_h", "stride_w", "stride_d", "global_pooling", "ceil_mode", "pad", "pad_h0", "temporal_stride")
    class PoolMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MAX: _ClassVar[Pooling3DParameter.PoolMethod]
        AVE: _ClassVar[Pooling3DParameter.PoolMethod]
        AVE_EXC_PAD: _ClassVar[Pooling3DParameter.PoolMethod]
        STOCHASTIC: _ClassVar[Pooling3DParameter.PoolMethod]
    MAX: Pooling3DParameter.PoolMethod
    AVE: Pooling3DParameter.PoolMethod
    AVE_EXC_PAD: Pooling3DParameter.PoolMethod
    STOCHASTIC: Pooling3DParameter.PoolMethod
    POOL_FIELD_NUMBER: _ClassVar[int]
    KERNEL_SIZE_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    KERNEL_DEPTH_FIELD_NUMBER: _ClassVar[int]
    PAD_H1_FIELD_NUMBER: _ClassVar[int]
    PAD_W0_FIELD_NUMBER: _ClassVar[int]
    PAD_W1_FIELD_NUMBER: _ClassVar[int]
    PAD_D0_FIELD_NUMBER: _ClassVar[int]
    PAD_D1_FIELD_NUMBER: _ClassVar[int]
    KERNEL_H_FIELD_NUMBER: _ClassVar[int]
    KERNEL_W_FIELD_NUMBER: _ClassVar[int]
    KERNEL_D_FIELD_NUMBER: _ClassVar[int]
    STRIDE_H_FIELD_NUMBER: _ClassVar[int]
    STRIDE_W_FIELD_NUMBER: _ClassVar[int]
    STRIDE_D_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_POOLING_FIELD_NUMBER: _ClassVar[int]
    CEIL_MODE_FIELD_NUMBER: _ClassVar[int]
    PAD_FIELD_NUMBER: _ClassVar[int]
    PAD_H0_FIELD_NUMBER: _ClassVar[int]
    TEMPORAL_STRIDE_FIELD_NUMBER: _ClassVar[int]
    pool: Pooling3DParameter.PoolMethod
    kernel_size: int
    stride: int
    kernel_depth: int
    pad_h1: int
    pad_w0: int
    pad_w1: int
    pad_d0: int
    pad_d1: int
    kernel_h: int
    kernel_w: int
    kernel_d: int
    stride_h: int
    stride_w: int
    stride_d: int
    global_pooling: bool
    ceil_mode: bool
    pad: int
    pad_h0: int
    temporal_stride: int
    def __init__(self, pool: _Optional[_Union[Pooling3DParameter.PoolMethod, str]] = ..., kernel_size: _Optional[int] = ..., stride: _Optional[int] = ..., kernel_depth: _Optional[int] = ..., pad_h1: _Optional[int] = ..., pad_w0: _Optional[int] = ..., pad_w1: _Optional[int] = ..., pad_d0: _Optional[int] = ..., pad_d1: _Optional[int] = ..., kernel_h: _Optional[int] = ..., kernel_w: _Optional[int] = ..., kernel_d: _Optional[int] = ..., stride_h: _Optional[int] = ..., stride_w: _Optional[int] = ..., stride_d: _Optional[int] = ..., global_pooling: _Optional[bool] = ..., ceil_mode: _Optional[bool] = ..., pad: _Optional[int] = ..., pad_h0: _Optional[int] = ..., temporal_stride: _Optional[int] = ...) -> None: ...

class PredictBoxParameter(_message.Message):
    __slots__ = ("stride", "receptive_field", "nms", "output_vector", "positive_thresh", "bbreg_exp")
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    RECEPTIVE_FIELD_FIELD_NUMBER: _ClassVar[int]
    NMS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_VECTOR_FIELD_NUMBER: _ClassVar[int]
    POSITIVE_THRESH_FIELD_NUMBER: _ClassVar[int]
    BBREG_EXP_FIELD_NUMBER: _ClassVar[int]
    stride: int
    receptive_field: int
    nms: bool
    output_vector: bool
    positive_thresh: float
    bbreg_exp: bool
    def __init__(self, stride: _Optional[int] = ..., receptive_field: _Optional[int] = ..., nms: _Optional[bool] = ..., output_vector: _Optional[bool] = ..., positive_thresh: _Optional[float] = ..., bbreg_exp: _Optional[bool] = ...) -> None: ...

class PriorBoxParameter(_message.Message):
    __slots__ = ("min_size", "max_size", "aspect_ratio", "flip", "clip", "variance", "img_size", "img_h", "img_w", "step", "step_h", "step_w", "offset", "faceboxes", "box_width", "box_height", "tf", "yx_order", "keras", "width", "height", "denser_prior_boxes", "offset_h", "offset_w")
    class CodeType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CORNER: _ClassVar[PriorBoxParameter.CodeType]
        CENTER_SIZE: _ClassVar[PriorBoxParameter.CodeType]
        CORNER_SIZE: _ClassVar[PriorBoxParameter.CodeType]
    CORNER: PriorBoxParameter.CodeType
    CENTER_SIZE: PriorBoxParameter.CodeType
    CORNER_SIZE: PriorBoxParameter.CodeType
    MIN_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_SIZE_FIELD_NUMBER: _ClassVar[int]
    ASPECT_RATIO_FIELD_NUMBER: _ClassVar[int]
    FLIP_FIELD_NUMBER: _ClassVar[int]
    CLIP_FIELD_NUMBER: _ClassVar[int]
    VARIANCE_FIELD_NUMBER: _ClassVar[int]
    IMG_SIZE_FIELD_NUMBER: _ClassVar[int]
    IMG_H_FIELD_NUMBER: _ClassVar[int]
    IMG_W_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    STEP_H_FIELD_NUMBER: _ClassVar[int]
    STEP_W_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    FACEBOXES_FIELD_NUMBER: _ClassVar[int]
    BOX_WIDTH_FIELD_NUMBER: _ClassVar[int]
    BOX_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    TF_FIELD_NUMBER: _ClassVar[int]
    YX_ORDER_FIELD_NUMBER: _ClassVar[int]
    KERAS_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    DENSER_PRIOR_BOXES_FIELD_NUMBER: _ClassVar[int]
    OFFSET_H_FIELD_NUMBER: _ClassVar[int]
    OFFSET_W_FIELD_NUMBER: _ClassVar[int]
    min_size: _containers.RepeatedScalarFieldContainer[float]
    max_size: _containers.RepeatedScalarFieldContainer[float]
    aspect_ratio: _containers.RepeatedScalarFieldContainer[float]
    flip: bool
    clip: bool
    variance: _containers.RepeatedScalarFieldContainer[float]
    img_size: int
    img_h: int
    img_w: int
    step: float
    step_h: float
    step_w: float
    offset: float
    faceboxes: bool
    box_width: _containers.RepeatedScalarFieldContainer[float]
    box_height: _containers.RepeatedScalarFieldContainer[float]
    tf: bool
    yx_order: bool
    keras: bool
    width: _containers.RepeatedScalarFieldContainer[float]
    height: _containers.RepeatedScalarFieldContainer[float]
    denser_prior_boxes: bool
    offset_h: _containers.RepeatedScalarFieldContainer[float]
    offset_w: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, min_size: _Optional[_Iterable[float]] = ..., max_size: _Optional[_Iterable[float]] = ..., aspect_ratio: _Optional[_Iterable[float]] = ..., flip: _Optional[bool] = ..., clip: _Optional[bool] = ..., variance: _Optional[_Iterable[float]] = ..., img_size: _Optional[int] = ..., img_h: _Optional[int] = ..., img_w: _Optional[int] = ..., step: _Optional[float] = ..., step_h: _Optional[float] = ..., step_w: _Optional[float] = ..., offset: _Optional[float] = ..., faceboxes: _Optional[bool] = ..., box_width: _Optional[_Iterable[float]] = ..., box_height: _Optional[_Iterable[float]] = ..., tf: _Optional[bool] = ..., yx_order: _Optional[bool] = ..., keras: _Optional[bool] = ..., width: _Optional[_Iterable[float]] = ..., height: _Optional[_Iterable[float]] = ..., denser_prior_boxes: _Optional[bool] = ..., offset_h: _Optional[_Iterable[float]] = ..., offset_w: _Optional[_Iterable[float]] = ...) -> None: ...

class ProposalParameter(_message.Message):
    __slots__ = ("feat_stride", "anchor_base_size", "anchor_scale", "anchor_ratio", "max_rois", "pre_nms_topn", "post_nms_topn", "nms_thresh", "base_size", "min_size", "ratio", "rpn_min_size", "rpn_nms_thresh", "scale")
    FEAT_STRIDE_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_BASE_SIZE_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_SCALE_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_RATIO_FIELD_NUMBER: _ClassVar[int]
    MAX_ROIS_FIELD_NUMBER: _ClassVar[int]
    PRE_NMS_TOPN_FIELD_NUMBER: _ClassVar[int]
    POST_NMS_TOPN_FIELD_NUMBER: _ClassVar[int]
    NMS_THRESH_FIELD_NUMBER: _ClassVar[int]
    BASE_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIN_SIZE_FIELD_NUMBER: _ClassVar[int]
    RATIO_FIELD_NUMBER: _ClassVar[int]
    RPN_MIN_SIZE_FIELD_NUMBER: _ClassVar[int]
    RPN_NMS_THRESH_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    feat_stride: int
    anchor_base_size: int
    anchor_scale: int
    anchor_ratio: int
    max_rois: int
    pre_nms_topn: int
    post_nms_topn: int
    nms_thresh: float
    base_size: int
    min_size: int
    ratio: _containers.RepeatedScalarFieldContainer[float]
    rpn_min_size: float
    rpn_nms_thresh: float
    scale: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, feat_stride: _Optional[int] = ..., anchor_base_size: _Optional[int] = ..., anchor_scale: _Optional[int] = ..., anchor_ratio: _Optional[int] = ..., max_rois: _Optional[int] = ..., pre_nms_topn: _Optional[int] = ..., post_nms_topn: _Optional[int] = ..., nms_thresh: _Optional[float] = ..., base_size: _Optional[int] = ..., min_size: _Optional[int] = ..., ratio: _Optional[_Iterable[float]] = ..., rpn_min_size: _Optional[float] = ..., rpn_nms_thresh: _Optional[float] = ..., scale: _Optional[_Iterable[float]] = ...) -> None: ...

class ProposalTargetParameter(_message.Message):
    __slots__ = ("cls_num", "batch_size", "fg_fraction", "num_img_per_batch", "fg_thr", "bg_thr_hg", "bg_thr_lw", "img_width", "img_height", "iou_weighted", "bbox_thr_lw", "bbox_thr_hg", "pickup_discard", "append_gtbox")
    CLS_NUM_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    FG_FRACTION_FIELD_NUMBER: _ClassVar[int]
    NUM_IMG_PER_BATCH_FIELD_NUMBER: _ClassVar[int]
    FG_THR_FIELD_NUMBER: _ClassVar[int]
    BG_THR_HG_FIELD_NUMBER: _ClassVar[int]
    BG_THR_LW_FIELD_NUMBER: _ClassVar[int]
    IMG_WIDTH_FIELD_NUMBER: _ClassVar[int]
    IMG_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    IOU_WEIGHTED_FIELD_NUMBER: _ClassVar[int]
    BBOX_THR_LW_FIELD_NUMBER: _ClassVar[int]
    BBOX_THR_HG_FIELD_NUMBER: _ClassVar[int]
    PICKUP_DISCARD_FIELD_NUMBER: _ClassVar[int]
    APPEND_GTBOX_FIELD_NUMBER: _ClassVar[int]
    cls_num: int
    batch_size: int
    fg_fraction: float
    num_img_per_batch: int
    fg_thr: float
    bg_thr_hg: float
    bg_thr_lw: float
    img_width: int
    img_height: int
    iou_weighted: bool
    bbox_thr_lw: float
    bbox_thr_hg: float
    pickup_discard: bool
    append_gtbox: bool
    def __init__(self, cls_num: _Optional[int] = ..., batch_size: _Optional[int] = ..., fg_fraction: _Optional[float] = ..., num_img_per_batch: _Optional[int] = ..., fg_thr: _Optional[float] = ..., bg_thr_hg: _Optional[float] = ..., bg_thr_lw: _Optional[float] = ..., img_width: _Optional[int] = ..., img_height: _Optional[int] = ..., iou_weighted: _Optional[bool] = ..., bbox_thr_lw: _Optional[float] = ..., bbox_thr_hg: _Optional[float] = ..., pickup_discard: _Optional[bool] = ..., append_gtbox: _Optional[bool] = ...) -> None: ...

class PyramidROIAlignParameter(_message.Message):
    __slots__ = ("crop_height", "crop_width", "extrapolation_value", "data_format")
    CROP_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    CROP_WIDTH_FIELD_NUMBER: _ClassVar[int]
    EXTRAPOLATION_VALUE_FIELD_NUMBER: _ClassVar[int]
    DATA_FORMAT_FIELD_NUMBER: _ClassVar[int]
    crop_height: int
    crop_width: int
    extrapolation_value: float
    data_format: str
    def __init__(self, crop_height: _Optional[int] = ..., crop_width: _Optional[int] = ..., extrapolation_value: _Optional[float] = ..., data_format: _Optional[str] = ...) -> None: ...

class QuantizationParameter(_message.Message):
    __slots__ = ("precision", "rounding_scheme", "bw_layer_in", "bw_layer_out", "bw_params", "fl_layer_in", "fl_layer_out", "fl_params", "scale_in", "scale_out", "scale_params", "is_negative_input", "force_u8_input")
    class Precision(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DYNAMIC_FIXED_POINT: _ClassVar[QuantizationParameter.Precision]
    DYNAMIC_FIXED_POINT: QuantizationParameter.Precision
    class Rounding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NEAREST: _ClassVar[QuantizationParameter.Rounding]
    NEAREST: QuantizationParameter.Rounding
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    ROUNDING_SCHEME_FIELD_NUMBER: _ClassVar[int]
    BW_LAYER_IN_FIELD_NUMBER: _ClassVar[int]
    BW_LAYER_OUT_FIELD_NUMBER: _ClassVar[int]
    BW_PARAMS_FIELD_NUMBER: _ClassVar[int]
    FL_LAYER_IN_FIELD_NUMBER: _ClassVar[int]
    FL_LAYER_OUT_FIELD_NUMBER: _ClassVar[int]
    FL_PARAMS_FIELD_NUMBER: _ClassVar[int]
    SCALE_IN_FIELD_NUMBER: _ClassVar[int]
    SCALE_OUT_FIELD_NUMBER: _ClassVar[int]
    SCALE_PARAMS_FIELD_NUMBER: _ClassVar[int]
    IS_NEGATIVE_INPUT_FIELD_NUMBER: _ClassVar[int]
    FORCE_U8_INPUT_FIELD_NUMBER: _ClassVar[int]
    precision: QuantizationParameter.Precision
    rounding_scheme: QuantizationParameter.Rounding
    bw_layer_in: int
    bw_layer_out: int
    bw_params: int
    fl_layer_in: _containers.RepeatedScalarFieldContainer[int]
    fl_layer_out: _containers.RepeatedScalarFieldContainer[int]
    fl_params: _containers.RepeatedScalarFieldContainer[int]
    scale_in: _containers.RepeatedScalarFieldContainer[float]
    scale_out: _containers.RepeatedScalarFieldContainer[float]
    scale_params: _containers.RepeatedScalarFieldContainer[float]
    is_negative_input: bool
    force_u8_input: bool
    def __init__(self, precision: _Optional[_Union[QuantizationParameter.Precision, str]] = ..., rounding_scheme: _Optional[_Union[QuantizationParameter.Rounding, str]] = ..., bw_layer_in: _Optional[int] = ..., bw_layer_out: _Optional[int] = ..., bw_params: _Optional[int] = ..., fl_layer_in: _Optional[_Iterable[int]] = ..., fl_layer_out: _Optional[_Iterable[int]] = ..., fl_params: _Optional[_Iterable[int]] = ..., scale_in: _Optional[_Iterable[float]] = ..., scale_out: _Optional[_Iterable[float]] = ..., scale_params: _Optional[_Iterable[float]] = ..., is_negative_input: _Optional[bool] = ..., force_u8_input: _Optional[bool] = ...) -> None: ...

class RNNv2Parameter(_message.Message):
    __slots__ = ("num_layers", "hidden_size", "op", "direction", "activations", "activation_alpha", "activation_beta", "merge_mode", "linear_before_reset", "default_initial", "continue_recur")
    NUM_LAYERS_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_SIZE_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    ACTIVATIONS_FIELD_NUMBER: _ClassVar[int]
    ACTIVATION_ALPHA_FIELD_NUMBER: _ClassVar[int]
    ACTIVATION_BETA_FIELD_NUMBER: _ClassVar[int]
    MERGE_MODE_FIELD_NUMBER: _ClassVar[int]
    LINEAR_BEFORE_RESET_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_INITIAL_FIELD_NUMBER: _ClassVar[int]
    CONTINUE_RECUR_FIELD_NUMBER: _ClassVar[int]
    num_layers: int
    hidden_size: int
    op: str
    direction: str
    activations: _containers.RepeatedScalarFieldContainer[str]
    activation_alpha: _containers.RepeatedScalarFieldContainer[float]
    activation_beta: _containers.RepeatedScalarFieldContainer[float]
    merge_mode: str
    linear_before_reset: int
    default_initial: bool
    continue_recur: bool
    def __init__(self, num_layers: _Optional[int] = ..., hidden_size: _Optional[int] = ..., op: _Optional[str] = ..., direction: _Optional[str] = ..., activations: _Optional[_Iterable[str]] = ..., activation_alpha: _Optional[_Iterable[float]] = ..., activation_beta: _Optional[_Iterable[float]] = ..., merge_mode: _Optional[str] = ..., linear_before_reset: _Optional[int] = ..., default_initial: _Optional[bool] = ..., continue_recur: _Optional[bool] = ...) -> None: ...

class ROIAlignParameter(_message.Message):
    __slots__ = ("pooled_h", "pooled_w", "spatial_scale")
    POOLED_H_FIELD_NUMBER: _ClassVar[int]
    POOLED_W_FIELD_NUMBER: _ClassVar[int]
    SPATIAL_SCALE_FIELD_NUMBER: _ClassVar[int]
    pooled_h: int
    pooled_w: int
    spatial_scale: float
    def __init__(self, pooled_h: _Optional[int] = ..., pooled_w: _Optional[int] = ..., spatial_scale: _Optional[float] = ...) -> None: ...

class ROIPoolingParameter(_message.Message):
    __slots__ = ("pooled_h", "pooled_w", "spatial_scale", "pad_ratio", "pooled_size")
    POOLED_H_FIELD_NUMBER: _ClassVar[int]
    POOLED_W_FIELD_NUMBER: _ClassVar[int]
    SPATIAL_SCALE_FIELD_NUMBER: _ClassVar[int]
    PAD_RATIO_FIELD_NUMBER: _ClassVar[int]
    POOLED_SIZE_FIELD_NUMBER: _ClassVar[int]
    pooled_h: int
    pooled_w: int
    spatial_scale: float
    pad_ratio: float
    pooled_size: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, pooled_h: _Optional[int] = ..., pooled_w: _Optional[int] = ..., spatial_scale: _Optional[float] = ..., pad_ratio: _Optional[float] = ..., pooled_size: _Optional[_Iterable[int]] = ...) -> None: ...

class ROIWarpingParameter(_message.Message):
    __slots__ = ("pooled_h", "pooled_w", "spatial_scale")
    POOLED_H_FIELD_NUMBER: _ClassVar[int]
    POOLED_W_FIELD_NUMBER: _ClassVar[int]
    SPATIAL_SCALE_FIELD_NUMBER: _ClassVar[int]
    pooled_h: int
    pooled_w: int
    spatial_scale: float
    def __init__(self, pooled_h: _Optional[int] = ..., pooled_w: _Optional[int] = ..., spatial_scale: _Optional[float] = ...) -> None: ...

class RandomAspectRatioParameter(_message.Message):
    __slots__ = ("min_area_ratio", "max_area_ratio", "aspect_ratio_change", "max_attempt", "resize_param")
    MIN_AREA_RATIO_FIELD_NUMBER: _ClassVar[int]
    MAX_AREA_RATIO_FIELD_NUMBER: _ClassVar[int]
    ASPECT_RATIO_CHANGE_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RESIZE_PARAM_FIELD_NUMBER: _ClassVar[int]
    min_area_ratio: float
    max_area_ratio: float
    aspect_ratio_change: float
    max_attempt: int
    resize_param: ResizeParameter
    def __init__(self, min_area_ratio: _Optional[float] = ..., max_area_ratio: _Optional[float] = ..., aspect_ratio_change: _Optional[float] = ..., max_attempt: _Optional[int] = ..., resize_param: _Optional[_Union[ResizeParameter, _Mapping]] = ...) -> None: ...

class RandomGeneratorParameter(_message.Message):
    __slots__ = ("rand_type", "exp", "mean", "spread", "prob", "apply_schedule", "discretize", "multiplier")
    RAND_TYPE_FIELD_NUMBER: _ClassVar[int]
    EXP_FIELD_NUMBER: _ClassVar[int]
    MEAN_FIELD_NUMBER: _ClassVar[int]
    SPREAD_FIELD_NUMBER: _ClassVar[int]
    PROB_FIELD_NUMBER: _ClassVar[int]
    APPLY_SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    DISCRETIZE_FIELD_NUMBER: _ClassVar[int]
    MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    rand_type: str
    exp: bool
    mean: float
    spread: float
    prob: float
    apply_schedule: bool
    discretize: bool
    multiplier: float
    def __init__(self, rand_type: _Optional[str] = ..., exp: _Optional[bool] = ..., mean: _Optional[float] = ..., spread: _Optional[float] = ..., prob: _Optional[float] = ..., apply_schedule: _Optional[bool] = ..., discretize: _Optional[bool] = ..., multiplier: _Optional[float] = ...) -> None: ...

class RandomResizeParameter(_message.Message):
    __slots__ = ("min_size", "max_size", "resize_param")
    MIN_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_SIZE_FIELD_NUMBER: _ClassVar[int]
    RESIZE_PARAM_FIELD_NUMBER: _ClassVar[int]
    min_size: int
    max_size: int
    resize_param: ResizeParameter
    def __init__(self, min_size: _Optional[int] = ..., max_size: _Optional[int] = ..., resize_param: _Optional[_Union[ResizeParameter, _Mapping]] = ...) -> None: ...

class RangeParameter(_message.Message):
    __slots__ = ("start", "limit", "delta")
    START_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    start: float
    limit: float
    delta: float
    def __init__(self, start: _Optional[float] = ..., limit: _Optional[float] = ..., delta: _Optional[float] = ...) -> None: ...

class ReaderParameter(_message.Message):
    __slots__ = ("file", "num")
    FILE_FIELD_NUMBER: _ClassVar[int]
    NUM_FIELD_NUMBER: _ClassVar[int]
    file: str
    num: int
    def __init__(self, file: _Optional[str] = ..., num: _Optional[int] = ...) -> None: ...

class ReduceAllParameter(_message.Message):
    __slots__ = ("axis", "keepdims")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    KEEPDIMS_FIELD_NUMBER: _ClassVar[int]
    axis: _containers.RepeatedScalarFieldContainer[int]
    keepdims: bool
    def __init__(self, axis: _Optional[_Iterable[int]] = ..., keepdims: _Optional[bool] = ...) -> None: ...

class ReduceAnyParameter(_message.Message):
    __slots__ = ("axis", "keepdims")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    KEEPDIMS_FIELD_NUMBER: _ClassVar[int]
    axis: _containers.RepeatedScalarFieldContainer[int]
    keepdims: bool
    def __init__(self, axis: _Optional[_Iterable[int]] = ..., keepdims: _Optional[bool] = ...) -> None: ...

class ReduceL1Parameter(_message.Message):
    __slots__ = ("axes", "keepdims")
    AXES_FIELD_NUMBER: _ClassVar[int]
    KEEPDIMS_FIELD_NUMBER: _ClassVar[int]
    axes: _containers.RepeatedScalarFieldContainer[int]
    keepdims: int
    def __init__(self, axes: _Optional[_Iterable[int]] = ..., keepdims: _Optional[int] = ...) -> None: ...

class ReduceL2Parameter(_message.Message):
    __slots__ = ("axes", "keepdims")
    AXES_FIELD_NUMBER: _ClassVar[int]
    KEEPDIMS_FIELD_NUMBER: _ClassVar[int]
    axes: _containers.RepeatedScalarFieldContainer[int]
    keepdims: int
    def __init__(self, axes: _Optional[_Iterable[int]] = ..., keepdims: _Optional[int] = ...) -> None: ...

class ReduceLogSumExpParameter(_message.Message):
    __slots__ = ("axis", "keepdims")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    KEEPDIMS_FIELD_NUMBER: _ClassVar[int]
    axis: _containers.RepeatedScalarFieldContainer[int]
    keepdims: bool
    def __init__(self, axis: _Optional[_Iterable[int]] = ..., keepdims: _Optional[bool] = ...) -> None: ...

class ReduceMaxParameter(_message.Message):
    __slots__ = ("axis", "keepdims")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    KEEPDIMS_FIELD_NUMBER: _ClassVar[int]
    axis: _containers.RepeatedScalarFieldContainer[int]
    keepdims: bool
    def __init__(self, axis: _Optional[_Iterable[int]] = ..., keepdims: _Optional[bool] = ...) -> None: ...

class ReduceMeanParameter(_message.Message):
    __slots__ = ("axis", "keepdims")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    KEEPDIMS_FIELD_NUMBER: _ClassVar[int]
    axis: _containers.RepeatedScalarFieldContainer[int]
    keepdims: bool
    def __init__(self, axis: _Optional[_Iterable[int]] = ..., keepdims: _Optional[bool] = ...) -> None: ...

class ReduceMinParameter(_message.Message):
    __slots__ = ("axis", "keepdims")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    KEEPDIMS_FIELD_NUMBER: _ClassVar[int]
    axis: _containers.RepeatedScalarFieldContainer[int]
    keepdims: bool
    def __init__(self, axis: _Optional[_Iterable[int]] = ..., keepdims: _Optional[bool] = ...) -> None: ...

class ReduceProdParameter(_message.Message):
    __slots__ = ("axis", "keepdims")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    KEEPDIMS_FIELD_NUMBER: _ClassVar[int]
    axis: _containers.RepeatedScalarFieldContainer[int]
    keepdims: bool
    def __init__(self, axis: _Optional[_Iterable[int]] = ..., keepdims: _Optional[bool] = ...) -> None: ...

class ReduceSumParameter(_message.Message):
    __slots__ = ("axis", "keepdims")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    KEEPDIMS_FIELD_NUMBER: _ClassVar[int]
    axis: _containers.RepeatedScalarFieldContainer[int]
    keepdims: bool
    def __init__(self, axis: _Optional[_Iterable[int]] = ..., keepdims: _Optional[bool] = ...) -> None: ...

class RegionLossParameter(_message.Message):
    __slots__ = ("side", "num_class", "bias_match", "coords", "num", "softmax", "jitter", "rescore", "object_scale", "class_scale", "noobject_scale", "coord_scale", "absolute", "thresh", "random", "biases", "softmax_tree", "class_map")
    SIDE_FIELD_NUMBER: _ClassVar[int]
    NUM_CLASS_FIELD_NUMBER: _ClassVar[int]
    BIAS_MATCH_FIELD_NUMBER: _ClassVar[int]
    COORDS_FIELD_NUMBER: _ClassVar[int]
    NUM_FIELD_NUMBER: _ClassVar[int]
    SOFTMAX_FIELD_NUMBER: _ClassVar[int]
    JITTER_FIELD_NUMBER: _ClassVar[int]
    RESCORE_FIELD_NUMBER: _ClassVar[int]
    OBJECT_SCALE_FIELD_NUMBER: _ClassVar[int]
    CLASS_SCALE_FIELD_NUMBER: _ClassVar[int]
    NOOBJECT_SCALE_FIELD_NUMBER: _ClassVar[int]
    COORD_SCALE_FIELD_NUMBER: _ClassVar[int]
    ABSOLUTE_FIELD_NUMBER: _ClassVar[int]
    THRESH_FIELD_NUMBER: _ClassVar[int]
    RANDOM_FIELD_NUMBER: _ClassVar[int]
    BIASES_FIELD_NUMBER: _ClassVar[int]
    SOFTMAX_TREE_FIELD_NUMBER: _ClassVar[int]
    CLASS_MAP_FIELD_NUMBER: _ClassVar[int]
    side: int
    num_class: int
    bias_match: int
    coords: int
    num: int
    softmax: int
    jitter: float
    rescore: int
    object_scale: float
    class_scale: float
    noobject_scale: float
    coord_scale: float
    absolute: int
    thresh: float
    random: int
    biases: _containers.RepeatedScalarFieldContainer[float]
    softmax_tree: str
    class_map: str
    def __init__(self, side: _Optional[int] = ..., num_class: _Optional[int] = ..., bias_match: _Optional[int] = ..., coords: _Optional[int] = ..., num: _Optional[int] = ..., softmax: _Optional[int] = ..., jitter: _Optional[float] = ..., rescore: _Optional[int] = ..., object_scale: _Optional[float] = ..., class_scale: _Optional[float] = ..., noobject_scale: _Optional[float] = ..., coord_scale: _Optional[float] = ..., absolute: _Optional[int] = ..., thresh: _Optional[float] = ..., random: _Optional[int] = ..., biases: _Optional[_Iterable[float]] = ..., softmax_tree: _Optional[str] = ..., class_map: _Optional[str] = ...) -> None: ...

class ReorgParameter(_message.Message):
    __slots__ = ("stride", "reverse")
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    REVERSE_FIELD_NUMBER: _ClassVar[int]
    stride: int
    reverse: bool
    def __init__(self, stride: _Optional[int] = ..., reverse: _Optional[bool] = ...) -> None: ...

class ResampleParameter(_message.Message):
    __slots__ = ("width", "height", "type", "antialias", "factor")
    class ResampleType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NEAREST: _ClassVar[ResampleParameter.ResampleType]
        LINEAR: _ClassVar[ResampleParameter.ResampleType]
        CUBIC: _ClassVar[ResampleParameter.ResampleType]
        AREA: _ClassVar[ResampleParameter.ResampleType]
    NEAREST: ResampleParameter.ResampleType
    LINEAR: ResampleParameter.ResampleType
    CUBIC: ResampleParameter.ResampleType
    AREA: ResampleParameter.ResampleType
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ANTIALIAS_FIELD_NUMBER: _ClassVar[int]
    FACTOR_FIELD_NUMBER: _ClassVar[int]
    width: int
    height: int
    type: ResampleParameter.ResampleType
    antialias: bool
    factor: float
    def __init__(self, width: _Optional[int] = ..., height: _Optional[int] = ..., type: _Optional[_Union[ResampleParameter.ResampleType, str]] = ..., antialias: _Optional[bool] = ..., factor: _Optional[float] = ...) -> None: ...

class ResizeBilinearParameter(_message.Message):
    __slots__ = ("align_corners", "output_height", "output_width", "data_format", "scale_height", "scale_width", "half_pixel_centers", "pytorch_half_pixel", "output_depth", "scale_depth", "input_scale", "output_scale", "input_zero_point", "output_zero_point", "saturate", "quantize_method")
    class QuantizeMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        tflite: _ClassVar[ResizeBilinearParameter.QuantizeMethod]
        ONNX: _ClassVar[ResizeBilinearParameter.QuantizeMethod]
        Caffe2: _ClassVar[ResizeBilinearParameter.QuantizeMethod]
    tflite: ResizeBilinearParameter.QuantizeMethod
    ONNX: ResizeBilinearParameter.QuantizeMethod
    Caffe2: ResizeBilinearParameter.QuantizeMethod
    class SaturateMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        Signed: _ClassVar[ResizeBilinearParameter.SaturateMethod]
        Unsigned: _ClassVar[ResizeBilinearParameter.SaturateMethod]
        Signed_8bit: _ClassVar[ResizeBilinearParameter.SaturateMethod]
        Unsigned_8bit: _ClassVar[ResizeBilinearParameter.SaturateMethod]
    Signed: ResizeBilinearParameter.SaturateMethod
    Unsigned: ResizeBilinearParameter.SaturateMethod
    Signed_8bit: ResizeBilinearParameter.SaturateMethod
    Unsigned_8bit: ResizeBilinearParameter.SaturateMethod
    ALIGN_CORNERS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_WIDTH_FIELD_NUMBER: _ClassVar[int]
    DATA_FORMAT_FIELD_NUMBER: _ClassVar[int]
    SCALE_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    SCALE_WIDTH_FIELD_NUMBER: _ClassVar[int]
    HALF_PIXEL_CENTERS_FIELD_NUMBER: _ClassVar[int]
    PYTORCH_HALF_PIXEL_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_DEPTH_FIELD_NUMBER: _ClassVar[int]
    SCALE_DEPTH_FIELD_NUMBER: _ClassVar[int]
    INPUT_SCALE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCALE_FIELD_NUMBER: _ClassVar[int]
    INPUT_ZERO_POINT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_ZERO_POINT_FIELD_NUMBER: _ClassVar[int]
    SATURATE_FIELD_NUMBER: _ClassVar[int]
    QUANTIZE_METHOD_FIELD_NUMBER: _ClassVar[int]
    align_corners: bool
    output_height: int
    output_width: int
    data_format: str
    scale_height: float
    scale_width: float
    half_pixel_centers: bool
    pytorch_half_pixel: bool
    output_depth: int
    scale_depth: float
    input_scale: float
    output_scale: float
    input_zero_point: int
    output_zero_point: int
    saturate: ResizeBilinearParameter.SaturateMethod
    quantize_method: ResizeBilinearParameter.QuantizeMethod
    def __init__(self, align_corners: _Optional[bool] = ..., output_height: _Optional[int] = ..., output_width: _Optional[int] = ..., data_format: _Optional[str] = ..., scale_height: _Optional[float] = ..., scale_width: _Optional[float] = ..., half_pixel_centers: _Optional[bool] = ..., pytorch_half_pixel: _Optional[bool] = ..., output_depth: _Optional[int] = ..., scale_depth: _Optional[float] = ..., input_scale: _Optional[float] = ..., output_scale: _Optional[float] = ..., input_zero_point: _Optional[int] = ..., output_zero_point: _Optional[int] = ..., saturate: _Optional[_Union[ResizeBilinearParameter.SaturateMethod, str]] = ..., quantize_method: _Optional[_Union[ResizeBilinearParameter.QuantizeMethod, str]] = ...) -> None: ...

class ResizeNearestNeighborParameter(_message.Message):
    __slots__ = ("align_corners", "output_height", "output_width", "data_format", "scale_height", "scale_width", "half_pixel_centers", "half_pixel_onnx")
    ALIGN_CORNERS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_WIDTH_FIELD_NUMBER: _ClassVar[int]
    DATA_FORMAT_FIELD_NUMBER: _ClassVar[int]
    SCALE_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    SCALE_WIDTH_FIELD_NUMBER: _ClassVar[int]
    HALF_PIXEL_CENTERS_FIELD_NUMBER: _ClassVar[int]
    HALF_PIXEL_ONNX_FIELD_NUMBER: _ClassVar[int]
    align_corners: bool
    output_height: int
    output_width: int
    data_format: str
    scale_height: float
    scale_width: float
    half_pixel_centers: bool
    half_pixel_onnx: bool
    def __init__(self, align_corners: _Optional[bool] = ..., output_height: _Optional[int] = ..., output_width: _Optional[int] = ..., data_format: _Optional[str] = ..., scale_height: _Optional[float] = ..., scale_width: _Optional[float] = ..., half_pixel_centers: _Optional[bool] = ..., half_pixel_onnx: _Optional[bool] = ...) -> None: ...

class ResizeParameter(_message.Message):
    __slots__ = ("prob", "resize_mode", "height", "width", "pad_mode", "pad_value", "interp_mode", "height_scale", "width_scale", "jitter", "is_pyramid_test", "out_height_scale", "out_width_scale", "option", "active")
    class Interp_mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        LINEAR: _ClassVar[ResizeParameter.Interp_mode]
        AREA: _ClassVar[ResizeParameter.Interp_mode]
        NEAREST: _ClassVar[ResizeParameter.Interp_mode]
        CUBIC: _ClassVar[ResizeParameter.Interp_mode]
        LANCZOS4: _ClassVar[ResizeParameter.Interp_mode]
    LINEAR: ResizeParameter.Interp_mode
    AREA: ResizeParameter.Interp_mode
    NEAREST: ResizeParameter.Interp_mode
    CUBIC: ResizeParameter.Interp_mode
    LANCZOS4: ResizeParameter.Interp_mode
    class Pad_mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CONSTANT: _ClassVar[ResizeParameter.Pad_mode]
        MIRRORED: _ClassVar[ResizeParameter.Pad_mode]
        REPEAT_NEAREST: _ClassVar[ResizeParameter.Pad_mode]
    CONSTANT: ResizeParameter.Pad_mode
    MIRRORED: ResizeParameter.Pad_mode
    REPEAT_NEAREST: ResizeParameter.Pad_mode
    class Resize_mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        WARP: _ClassVar[ResizeParameter.Resize_mode]
        FIT_SMALL_SIZE: _ClassVar[ResizeParameter.Resize_mode]
        FIT_LARGE_SIZE_AND_PAD: _ClassVar[ResizeParameter.Resize_mode]
    WARP: ResizeParameter.Resize_mode
    FIT_SMALL_SIZE: ResizeParameter.Resize_mode
    FIT_LARGE_SIZE_AND_PAD: ResizeParameter.Resize_mode
    PROB_FIELD_NUMBER: _ClassVar[int]
    RESIZE_MODE_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    PAD_MODE_FIELD_NUMBER: _ClassVar[int]
    PAD_VALUE_FIELD_NUMBER: _ClassVar[int]
    INTERP_MODE_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_SCALE_FIELD_NUMBER: _ClassVar[int]
    WIDTH_SCALE_FIELD_NUMBER: _ClassVar[int]
    JITTER_FIELD_NUMBER: _ClassVar[int]
    IS_PYRAMID_TEST_FIELD_NUMBER: _ClassVar[int]
    OUT_HEIGHT_SCALE_FIELD_NUMBER: _ClassVar[int]
    OUT_WIDTH_SCALE_FIELD_NUMBER: _ClassVar[int]
    OPTION_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    prob: float
    resize_mode: ResizeParameter.Resize_mode
    height: int
    width: int
    pad_mode: ResizeParameter.Pad_mode
    pad_value: _containers.RepeatedScalarFieldContainer[float]
    interp_mode: _containers.RepeatedScalarFieldContainer[ResizeParameter.Interp_mode]
    height_scale: int
    width_scale: int
    jitter: float
    is_pyramid_test: bool
    out_height_scale: float
    out_width_scale: float
    option: OptionalParameter
    active: bool
    def __init__(self, prob: _Optional[float] = ..., resize_mode: _Optional[_Union[ResizeParameter.Resize_mode, str]] = ..., height: _Optional[int] = ..., width: _Optional[int] = ..., pad_mode: _Optional[_Union[ResizeParameter.Pad_mode, str]] = ..., pad_value: _Optional[_Iterable[float]] = ..., interp_mode: _Optional[_Iterable[_Union[ResizeParameter.Interp_mode, str]]] = ..., height_scale: _Optional[int] = ..., width_scale: _Optional[int] = ..., jitter: _Optional[float] = ..., is_pyramid_test: _Optional[bool] = ..., out_height_scale: _Optional[float] = ..., out_width_scale: _Optional[float] = ..., option: _Optional[_Union[OptionalParameter, _Mapping]] = ..., active: _Optional[bool] = ...) -> None: ...

class ReverseParameter(_message.Message):
    __slots__ = ("axis",)
    AXIS_FIELD_NUMBER: _ClassVar[int]
    axis: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, axis: _Optional[_Iterable[int]] = ...) -> None: ...

class ReverseSequenceParameter(_message.Message):
    __slots__ = ("seq_axis", "batch_axis")
    SEQ_AXIS_FIELD_NUMBER: _ClassVar[int]
    BATCH_AXIS_FIELD_NUMBER: _ClassVar[int]
    seq_axis: int
    batch_axis: int
    def __init__(self, seq_axis: _Optional[int] = ..., batch_axis: _Optional[int] = ...) -> None: ...

class SaltPepperParameter(_message.Message):
    __slots__ = ("fraction", "value", "option", "active")
    FRACTION_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    OPTION_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    fraction: float
    value: _containers.RepeatedScalarFieldContainer[float]
    option: OptionalParameter
    active: bool
    def __init__(self, fraction: _Optional[float] = ..., value: _Optional[_Iterable[float]] = ..., option: _Optional[_Union[OptionalParameter, _Mapping]] = ..., active: _Optional[bool] = ...) -> None: ...

class SampleConstraint(_message.Message):
    __slots__ = ("min_jaccard_overlap", "max_jaccard_overlap", "min_sample_coverage", "max_sample_coverage", "min_object_coverage", "max_object_coverage")
    MIN_JACCARD_OVERLAP_FIELD_NUMBER: _ClassVar[int]
    MAX_JACCARD_OVERLAP_FIELD_NUMBER: _ClassVar[int]
    MIN_SAMPLE_COVERAGE_FIELD_NUMBER: _ClassVar[int]
    MAX_SAMPLE_COVERAGE_FIELD_NUMBER: _ClassVar[int]
    MIN_OBJECT_COVERAGE_FIELD_NUMBER: _ClassVar[int]
    MAX_OBJECT_COVERAGE_FIELD_NUMBER: _ClassVar[int]
    min_jaccard_overlap: float
    max_jaccard_overlap: float
    min_sample_coverage: float
    max_sample_coverage: float
    min_object_coverage: float
    max_object_coverage: float
    def __init__(self, min_jaccard_overlap: _Optional[float] = ..., max_jaccard_overlap: _Optional[float] = ..., min_sample_coverage: _Optional[float] = ..., max_sample_coverage: _Optional[float] = ..., min_object_coverage: _Optional[float] = ..., max_object_coverage: _Optional[float] = ...) -> None: ...

class Sampler(_message.Message):
    __slots__ = ("min_scale", "max_scale", "min_aspect_ratio", "max_aspect_ratio")
    MIN_SCALE_FIELD_NUMBER: _ClassVar[int]
    MAX_SCALE_FIELD_NUMBER: _ClassVar[int]
    MIN_ASPECT_RATIO_FIELD_NUMBER: _ClassVar[int]
    MAX_ASPECT_RATIO_FIELD_NUMBER: _ClassVar[int]
    min_scale: float
    max_scale: float
    min_aspect_ratio: float
    max_aspect_ratio: float
    def __init__(self, min_scale: _Optional[float] = ..., max_scale: _Optional[float] = ..., min_aspect_ratio: _Optional[float] = ..., max_aspect_ratio: _Optional[float] = ...) -> None: ...

class SaveOutputParameter(_message.Message):
    __slots__ = ("output_directory", "output_name_prefix", "output_format", "label_map_file", "name_size_file", "num_test_image", "resize_param", "option", "active")
    OUTPUT_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_NAME_PREFIX_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FORMAT_FIELD_NUMBER: _ClassVar[int]
    LABEL_MAP_FILE_FIELD_NUMBER: _ClassVar[int]
    NAME_SIZE_FILE_FIELD_NUMBER: _ClassVar[int]
    NUM_TEST_IMAGE_FIELD_NUMBER: _ClassVar[int]
    RESIZE_PARAM_FIELD_NUMBER: _ClassVar[int]
    OPTION_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    output_directory: str
    output_name_prefix: str
    output_format: str
    label_map_file: str
    name_size_file: str
    num_test_image: int
    resize_param: ResizeParameter
    option: OptionalParameter
    active: bool
    def __init__(self, output_directory: _Optional[str] = ..., output_name_prefix: _Optional[str] = ..., output_format: _Optional[str] = ..., label_map_file: _Optional[str] = ..., name_size_file: _Optional[str] = ..., num_test_image: _Optional[int] = ..., resize_param: _Optional[_Union[ResizeParameter, _Mapping]] = ..., option: _Optional[_Union[OptionalParameter, _Mapping]] = ..., active: _Optional[bool] = ...) -> None: ...

class ScaleRouteParameter(_message.Message):
    __slots__ = ("low_scale", "high_scale")
    LOW_SCALE_FIELD_NUMBER: _ClassVar[int]
    HIGH_SCALE_FIELD_NUMBER: _ClassVar[int]
    low_scale: float
    high_scale: float
    def __init__(self, low_scale: _Optional[float] = ..., high_scale: _Optional[float] = ...) -> None: ...

class ScaledTanHParameter(_message.Message):
    __slots__ = ("alpha", "beta")
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    BETA_FIELD_NUMBER: _ClassVar[int]
    alpha: float
    beta: float
    def __init__(self, alpha: _Optional[float] = ..., beta: _Optional[float] = ...) -> None: ...

class ScatterNDParameter(_message.Message):
    __slots__ = ("is_data_param", "is_indices_param", "is_updates_param", "data_shape", "indices_shape", "updates_shape")
    IS_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    IS_INDICES_PARAM_FIELD_NUMBER: _ClassVar[int]
    IS_UPDATES_PARAM_FIELD_NUMBER: _ClassVar[int]
    DATA_SHAPE_FIELD_NUMBER: _ClassVar[int]
    INDICES_SHAPE_FIELD_NUMBER: _ClassVar[int]
    UPDATES_SHAPE_FIELD_NUMBER: _ClassVar[int]
    is_data_param: bool
    is_indices_param: bool
    is_updates_param: bool
    data_shape: _containers.RepeatedScalarFieldContainer[int]
    indices_shape: _containers.RepeatedScalarFieldContainer[int]
    updates_shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, is_data_param: _Optional[bool] = ..., is_indices_param: _Optional[bool] = ..., is_updates_param: _Optional[bool] = ..., data_shape: _Optional[_Iterable[int]] = ..., indices_shape: _Optional[_Iterable[int]] = ..., updates_shape: _Optional[_Iterable[int]] = ...) -> None: ...

class SeLUDropoutParameter(_message.Message):
    __slots__ = ("dropout_ratio", "alpha")
    DROPOUT_RATIO_FIELD_NUMBER: _ClassVar[int]
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    dropout_ratio: float
    alpha: float
    def __init__(self, dropout_ratio: _Optional[float] = ..., alpha: _Optional[float] = ...) -> None: ...

class SeLUParameter(_message.Message):
    __slots__ = ("alpha",)
    LAMBDA_FIELD_NUMBER: _ClassVar[int]
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    alpha: float
    def __init__(self, alpha: _Optional[float] = ..., **kwargs) -> None: ...

class SegAccuracyParameter(_message.Message):
    __slots__ = ("metric", "ignore_label", "reset")
    class AccuracyMetric(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PixelAccuracy: _ClassVar[SegAccuracyParameter.AccuracyMetric]
        ClassAccuracy: _ClassVar[SegAccuracyParameter.AccuracyMetric]
        PixelIOU: _ClassVar[SegAccuracyParameter.AccuracyMetric]
    PixelAccuracy: SegAccuracyParameter.AccuracyMetric
    ClassAccuracy: SegAccuracyParameter.AccuracyMetric
    PixelIOU: SegAccuracyParameter.AccuracyMetric
    METRIC_FIELD_NUMBER: _ClassVar[int]
    IGNORE_LABEL_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    metric: SegAccuracyParameter.AccuracyMetric
    ignore_label: _containers.RepeatedScalarFieldContainer[int]
    reset: bool
    def __init__(self, metric: _Optional[_Union[SegAccuracyParameter.AccuracyMetric, str]] = ..., ignore_label: _Optional[_Iterable[int]] = ..., reset: _Optional[bool] = ...) -> None: ...

class SegDataParameter(_message.Message):
    __slots__ = ("source", "root_dir", "shuffle", "balance")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    ROOT_DIR_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    BALANCE_FIELD_NUMBER: _ClassVar[int]
    source: str
    root_dir: str
    shuffle: bool
    balance: bool
    def __init__(self, source: _Optional[str] = ..., root_dir: _Optional[str] = ..., shuffle: _Optional[bool] = ..., balance: _Optional[bool] = ...) -> None: ...

class SegmentationEvaluateParameter(_message.Message):
    __slots__ = ("num_classes", "threshold")
    NUM_CLASSES_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    num_classes: int
    threshold: float
    def __init__(self, num_classes: _Optional[int] = ..., threshold: _Optional[float] = ...) -> None: ...

class ShuffleChannelParameter(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: int
    def __init__(self, group: _Optional[int] = ...) -> None: ...

class SmoothL1LossParameter(_message.Message):
    __slots__ = ("sigma", "abssum")
    SIGMA_FIELD_NUMBER: _ClassVar[int]
    ABSSUM_FIELD_NUMBER: _ClassVar[int]
    sigma: float
    abssum: bool
    def __init__(self, sigma: _Optional[float] = ..., abssum: _Optional[bool] = ...) -> None: ...

class SmoothL1Parameter(_message.Message):
    __slots__ = ("turn_point",)
    TURN_POINT_FIELD_NUMBER: _ClassVar[int]
    turn_point: float
    def __init__(self, turn_point: _Optional[float] = ...) -> None: ...

class SoftContrastiveParameter(_message.Message):
    __slots__ = ("positive_margin", "negative_margin", "positive_weight", "negative_weight", "exponent_scale", "square")
    POSITIVE_MARGIN_FIELD_NUMBER: _ClassVar[int]
    NEGATIVE_MARGIN_FIELD_NUMBER: _ClassVar[int]
    POSITIVE_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    NEGATIVE_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    EXPONENT_SCALE_FIELD_NUMBER: _ClassVar[int]
    SQUARE_FIELD_NUMBER: _ClassVar[int]
    positive_margin: float
    negative_margin: float
    positive_weight: float
    negative_weight: float
    exponent_scale: float
    square: bool
    def __init__(self, positive_margin: _Optional[float] = ..., negative_margin: _Optional[float] = ..., positive_weight: _Optional[float] = ..., negative_weight: _Optional[float] = ..., exponent_scale: _Optional[float] = ..., square: _Optional[bool] = ...) -> None: ...

class SoftTruncationParameter(_message.Message):
    __slots__ = ("c",)
    C_FIELD_NUMBER: _ClassVar[int]
    c: float
    def __init__(self, c: _Optional[float] = ...) -> None: ...

class SoftmaxLossParameter(_message.Message):
    __slots__ = ("weight_source", "ignore_label")
    WEIGHT_SOURCE_FIELD_NUMBER: _ClassVar[int]
    IGNORE_LABEL_FIELD_NUMBER: _ClassVar[int]
    weight_source: str
    ignore_label: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, weight_source: _Optional[str] = ..., ignore_label: _Optional[_Iterable[int]] = ...) -> None: ...

class SolverBatchSizePair(_message.Message):
    __slots__ = ("solver_params", "batch_size")
    SOLVER_PARAMS_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    solver_params: SolverParameter
    batch_size: int
    def __init__(self, solver_params: _Optional[_Union[SolverParameter, _Mapping]] = ..., batch_size: _Optional[int] = ...) -> None: ...

class SpaceToBatchNDParameter(_message.Message):
    __slots__ = ("block_shape", "paddings")
    BLOCK_SHAPE_FIELD_NUMBER: _ClassVar[int]
    PADDINGS_FIELD_NUMBER: _ClassVar[int]
    block_shape: _containers.RepeatedScalarFieldContainer[int]
    paddings: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, block_shape: _Optional[_Iterable[int]] = ..., paddings: _Optional[_Iterable[int]] = ...) -> None: ...

class SpaceToDepthParameter(_message.Message):
    __slots__ = ("block_size", "data_format")
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    DATA_FORMAT_FIELD_NUMBER: _ClassVar[int]
    block_size: int
    data_format: str
    def __init__(self, block_size: _Optional[int] = ..., data_format: _Optional[str] = ...) -> None: ...

class SparseToDenseParameter(_message.Message):
    __slots__ = ("sparse_indices", "sparse_indices_shape", "output_shape", "sparse_values", "default_value", "validate_indices")
    SPARSE_INDICES_FIELD_NUMBER: _ClassVar[int]
    SPARSE_INDICES_SHAPE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SHAPE_FIELD_NUMBER: _ClassVar[int]
    SPARSE_VALUES_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_VALUE_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_INDICES_FIELD_NUMBER: _ClassVar[int]
    sparse_indices: _containers.RepeatedScalarFieldContainer[int]
    sparse_indices_shape: _containers.RepeatedScalarFieldContainer[int]
    output_shape: _containers.RepeatedScalarFieldContainer[int]
    sparse_values: _containers.RepeatedScalarFieldContainer[float]
    default_value: float
    validate_indices: bool
    def __init__(self, sparse_indices: _Optional[_Iterable[int]] = ..., sparse_indices_shape: _Optional[_Iterable[int]] = ..., output_shape: _Optional[_Iterable[int]] = ..., sparse_values: _Optional[_Iterable[float]] = ..., default_value: _Optional[float] = ..., validate_indices: _Optional[bool] = ...) -> None: ...

class SpatialBatchingPoolingParameter(_message.Message):
    __slots__ = ("pool", "kernel_size", "stride", "pad", "kernel_h", "kernel_w", "stride_h", "stride_w", "pad_h", "pad_w", "engine", "global_pooling", "ceil_mode", "pad_l", "pad_r", "pad_t", "pad_b", "spatial_batching_h", "spatial_batching_w", "batch_h", "batch_w", "skip_h", "skip_w", "saturate", "input_scale", "output_scale", "input_zero_point", "output_zero_point")
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[SpatialBatchingPoolingParameter.Engine]
        CAFFE: _ClassVar[SpatialBatchingPoolingParameter.Engine]
        CUDNN: _ClassVar[SpatialBatchingPoolingParameter.Engine]
    DEFAULT: SpatialBatchingPoolingParameter.Engine
    CAFFE: SpatialBatchingPoolingParameter.Engine
    CUDNN: SpatialBatchingPoolingParameter.Engine
    class PoolMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MAX: _ClassVar[SpatialBatchingPoolingParameter.PoolMethod]
        AVE: _ClassVar[SpatialBatchingPoolingParameter.PoolMethod]
        STOCHASTIC: _ClassVar[SpatialBatchingPoolingParameter.PoolMethod]
    MAX: SpatialBatchingPoolingParameter.PoolMethod
    AVE: SpatialBatchingPoolingParameter.PoolMethod
    STOCHASTIC: SpatialBatchingPoolingParameter.PoolMethod
    class SaturateMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        Signed: _ClassVar[SpatialBatchingPoolingParameter.SaturateMethod]
        Unsigned: _ClassVar[SpatialBatchingPoolingParameter.SaturateMethod]
        Signed_8bit: _ClassVar[SpatialBatchingPoolingParameter.SaturateMethod]
        Unsigned_8bit: _ClassVar[SpatialBatchingPoolingParameter.SaturateMethod]
    Signed: SpatialBatchingPoolingParameter.SaturateMethod
    Unsigned: SpatialBatchingPoolingParameter.SaturateMethod
    Signed_8bit: SpatialBatchingPoolingParameter.SaturateMethod
    Unsigned_8bit: SpatialBatchingPoolingParameter.SaturateMethod
    POOL_FIELD_NUMBER: _ClassVar[int]
    KERNEL_SIZE_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    PAD_FIELD_NUMBER: _ClassVar[int]
    KERNEL_H_FIELD_NUMBER: _ClassVar[int]
    KERNEL_W_FIELD_NUMBER: _ClassVar[int]
    STRIDE_H_FIELD_NUMBER: _ClassVar[int]
    STRIDE_W_FIELD_NUMBER: _ClassVar[int]
    PAD_H_FIELD_NUMBER: _ClassVar[int]
    PAD_W_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_POOLING_FIELD_NUMBER: _ClassVar[int]
    CEIL_MODE_FIELD_NUMBER: _ClassVar[int]
    PAD_L_FIELD_NUMBER: _ClassVar[int]
    PAD_R_FIELD_NUMBER: _ClassVar[int]
    PAD_T_FIELD_NUMBER: _ClassVar[int]
    PAD_B_FIELD_NUMBER: _ClassVar[int]
    SPATIAL_BATCHING_H_FIELD_NUMBER: _ClassVar[int]
    SPATIAL_BATCHING_W_FIELD_NUMBER: _ClassVar[int]
    BATCH_H_FIELD_NUMBER: _ClassVar[int]
    BATCH_W_FIELD_NUMBER: _ClassVar[int]
    SKIP_H_FIELD_NUMBER: _ClassVar[int]
    SKIP_W_FIELD_NUMBER: _ClassVar[int]
    SATURATE_FIELD_NUMBER: _ClassVar[int]
    INPUT_SCALE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCALE_FIELD_NUMBER: _ClassVar[int]
    INPUT_ZERO_POINT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_ZERO_POINT_FIELD_NUMBER: _ClassVar[int]
    pool: SpatialBatchingPoolingParameter.PoolMethod
    kernel_size: int
    stride: int
    pad: int
    kernel_h: int
    kernel_w: int
    stride_h: int
    stride_w: int
    pad_h: int
    pad_w: int
    engine: SpatialBatchingPoolingParameter.Engine
    global_pooling: bool
    ceil_mode: bool
    pad_l: int
    pad_r: int
    pad_t: int
    pad_b: int
    spatial_batching_h: int
    spatial_batching_w: int
    batch_h: int
    batch_w: int
    skip_h: int
    skip_w: int
    saturate: SpatialBatchingPoolingParameter.SaturateMethod
    input_scale: float
    output_scale: float
    input_zero_point: int
    output_zero_point: int
    def __init__(self, pool: _Optional[_Union[SpatialBatchingPoolingParameter.PoolMethod, str]] = ..., kernel_size: _Optional[int] = ..., stride: _Optional[int] = ..., pad: _Optional[int] = ..., kernel_h: _Optional[int] = ..., kernel_w: _Optional[int] = ..., stride_h: _Optional[int] = ..., stride_w: _Optional[int] = ..., pad_h: _Optional[int] = ..., pad_w: _Optional[int] = ..., engine: _Optional[_Union[SpatialBatchingPoolingParameter.Engine, str]] = ..., global_pooling: _Optional[bool] = ..., ceil_mode: _Optional[bool] = ..., pad_l: _Optional[int] = ..., pad_r: _Optional[int] = ..., pad_t: _Optional[int] = ..., pad_b: _Optional[int] = ..., spatial_batching_h: _Optional[int] = ..., spatial_batching_w: _Optional[int] = ..., batch_h: _Optional[int] = ..., batch_w: _Optional[int] = ..., skip_h: _Optional[int] = ..., skip_w: _Optional[int] = ..., saturate: _Optional[_Union[SpatialBatchingPoolingParameter.SaturateMethod, str]] = ..., input_scale: _Optional[float] = ..., output_scale: _Optional[float] = ..., input_zero_point: _Optional[int] = ..., output_zero_point: _Optional[int] = ...) -> None: ...

class SpatialDropoutParameter(_message.Message):
    __slots__ = ("dropout_ratio",)
    DROPOUT_RATIO_FIELD_NUMBER: _ClassVar[int]
    dropout_ratio: float
    def __init__(self, dropout_ratio: _Optional[float] = ...) -> None: ...

class RNNParameter(_message.Message):
    __slots__ = ("output_nonlinearity", "recurrent_nonlinearity", "num_hidden")
    OUTPUT_NONLINEARITY_FIELD_NUMBER: _ClassVar[int]
    RECURRENT_NONLINEARITY_FIELD_NUMBER: _ClassVar[int]
    NUM_HIDDEN_FIELD_NUMBER: _ClassVar[int]
    output_nonlinearity: str
    recurrent_nonlinearity: str
    num_hidden: int
    def __init__(self, output_nonlinearity: _Optional[str] = ..., recurrent_nonlinearity: _Optional[str] = ..., num_hidden: _Optional[int] = ...) -> None: ...

class SpatialSoftmaxParameter(_message.Message):
    __slots__ = ("engine", "temperature", "dimension")
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[SpatialSoftmaxParameter.Engine]
        CAFFE: _ClassVar[SpatialSoftmaxParameter.Engine]
        CUDNN: _ClassVar[SpatialSoftmaxParameter.Engine]
    DEFAULT: SpatialSoftmaxParameter.Engine
    CAFFE: SpatialSoftmaxParameter.Engine
    CUDNN: SpatialSoftmaxParameter.Engine
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    DIMENSION_FIELD_NUMBER: _ClassVar[int]
    engine: SpatialSoftmaxParameter.Engine
    temperature: float
    dimension: str
    def __init__(self, engine: _Optional[_Union[SpatialSoftmaxParameter.Engine, str]] = ..., temperature: _Optional[float] = ..., dimension: _Optional[str] = ...) -> None: ...

class SplitParameter(_message.Message):
    __slots__ = ("engine",)
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[SplitParameter.Engine]
        CAFFE: _ClassVar[SplitParameter.Engine]
        MKL2017: _ClassVar[SplitParameter.Engine]
        MKLDNN: _ClassVar[SplitParameter.Engine]
    DEFAULT: SplitParameter.Engine
    CAFFE: SplitParameter.Engine
    MKL2017: SplitParameter.Engine
    MKLDNN: SplitParameter.Engine
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    engine: SplitParameter.Engine
    def __init__(self, engine: _Optional[_Union[SplitParameter.Engine, str]] = ...) -> None: ...

class SqueezeConvolutionParameter(_message.Message):
    __slots__ = ("num_output", "bias_term", "pad", "kernel_size", "group", "stride", "weight_filler", "bias_filler", "pad_h", "pad_w", "kernel_h", "kernel_w", "stride_h", "stride_w", "engine", "axis", "force_nd_im2col", "gamma", "power", "iter_stop", "c_rate", "weight_mask_filler", "bias_mask_filler", "dilation", "dynamicsplicing", "splicing_rate", "pad_type", "pad_l", "pad_r", "pad_t", "pad_b", "input_scale", "output_scale", "saturate", "weight_scale", "input_zero_point", "output_zero_point", "weight_zero_point", "per_channel_scale_weight", "quantize_method", "per_channel_scale_output", "submanifold_sparse")
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[SqueezeConvolutionParameter.Engine]
        CAFFE: _ClassVar[SqueezeConvolutionParameter.Engine]
        CUDNN: _ClassVar[SqueezeConvolutionParameter.Engine]
    DEFAULT: SqueezeConvolutionParameter.Engine
    CAFFE: SqueezeConvolutionParameter.Engine
    CUDNN: SqueezeConvolutionParameter.Engine
    class QuantizeMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        tflite: _ClassVar[SqueezeConvolutionParameter.QuantizeMethod]
        ONNX: _ClassVar[SqueezeConvolutionParameter.QuantizeMethod]
        Caffe2: _ClassVar[SqueezeConvolutionParameter.QuantizeMethod]
    tflite: SqueezeConvolutionParameter.QuantizeMethod
    ONNX: SqueezeConvolutionParameter.QuantizeMethod
    Caffe2: SqueezeConvolutionParameter.QuantizeMethod
    class SaturateMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        Signed: _ClassVar[SqueezeConvolutionParameter.SaturateMethod]
        Unsigned: _ClassVar[SqueezeConvolutionParameter.SaturateMethod]
        Signed_8bit: _ClassVar[SqueezeConvolutionParameter.SaturateMethod]
        Unsigned_8bit: _ClassVar[SqueezeConvolutionParameter.SaturateMethod]
    Signed: SqueezeConvolutionParameter.SaturateMethod
    Unsigned: SqueezeConvolutionParameter.SaturateMethod
    Signed_8bit: SqueezeConvolutionParameter.SaturateMethod
    Unsigned_8bit: SqueezeConvolutionParameter.SaturateMethod
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    BIAS_TERM_FIELD_NUMBER: _ClassVar[int]
    PAD_FIELD_NUMBER: _ClassVar[int]
    KERNEL_SIZE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    PAD_H_FIELD_NUMBER: _ClassVar[int]
    PAD_W_FIELD_NUMBER: _ClassVar[int]
    KERNEL_H_FIELD_NUMBER: _ClassVar[int]
    KERNEL_W_FIELD_NUMBER: _ClassVar[int]
    STRIDE_H_FIELD_NUMBER: _ClassVar[int]
    STRIDE_W_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    FORCE_ND_IM2COL_FIELD_NUMBER: _ClassVar[int]
    GAMMA_FIELD_NUMBER: _ClassVar[int]
    POWER_FIELD_NUMBER: _ClassVar[int]
    ITER_STOP_FIELD_NUMBER: _ClassVar[int]
    C_RATE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_MASK_FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_MASK_FILLER_FIELD_NUMBER: _ClassVar[int]
    DILATION_FIELD_NUMBER: _ClassVar[int]
    DYNAMICSPLICING_FIELD_NUMBER: _ClassVar[int]
    SPLICING_RATE_FIELD_NUMBER: _ClassVar[int]
    PAD_TYPE_FIELD_NUMBER: _ClassVar[int]
    PAD_L_FIELD_NUMBER: _ClassVar[int]
    PAD_R_FIELD_NUMBER: _ClassVar[int]
    PAD_T_FIELD_NUMBER: _ClassVar[int]
    PAD_B_FIELD_NUMBER: _ClassVar[int]
    INPUT_SCALE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCALE_FIELD_NUMBER: _ClassVar[int]
    SATURATE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_SCALE_FIELD_NUMBER: _ClassVar[int]
    INPUT_ZERO_POINT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_ZERO_POINT_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_ZERO_POINT_FIELD_NUMBER: _ClassVar[int]
    PER_CHANNEL_SCALE_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    QUANTIZE_METHOD_FIELD_NUMBER: _ClassVar[int]
    PER_CHANNEL_SCALE_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    SUBMANIFOLD_SPARSE_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    bias_term: bool
    pad: _containers.RepeatedScalarFieldContainer[int]
    kernel_size: _containers.RepeatedScalarFieldContainer[int]
    group: int
    stride: _containers.RepeatedScalarFieldContainer[int]
    weight_filler: FillerParameter
    bias_filler: FillerParameter
    pad_h: int
    pad_w: int
    kernel_h: int
    kernel_w: int
    stride_h: int
    stride_w: int
    engine: SqueezeConvolutionParameter.Engine
    axis: int
    force_nd_im2col: bool
    gamma: float
    power: float
    iter_stop: float
    c_rate: float
    weight_mask_filler: FillerParameter
    bias_mask_filler: FillerParameter
    dilation: _containers.RepeatedScalarFieldContainer[int]
    dynamicsplicing: bool
    splicing_rate: float
    pad_type: int
    pad_l: int
    pad_r: int
    pad_t: int
    pad_b: int
    input_scale: float
    output_scale: float
    saturate: SqueezeConvolutionParameter.SaturateMethod
    weight_scale: float
    input_zero_point: int
    output_zero_point: int
    weight_zero_point: int
    per_channel_scale_weight: bool
    quantize_method: SqueezeConvolutionParameter.QuantizeMethod
    per_channel_scale_output: bool
    submanifold_sparse: bool
    def __init__(self, num_output: _Optional[int] = ..., bias_term: _Optional[bool] = ..., pad: _Optional[_Iterable[int]] = ..., kernel_size: _Optional[_Iterable[int]] = ..., group: _Optional[int] = ..., stride: _Optional[_Iterable[int]] = ..., weight_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., pad_h: _Optional[int] = ..., pad_w: _Optional[int] = ..., kernel_h: _Optional[int] = ..., kernel_w: _Optional[int] = ..., stride_h: _Optional[int] = ..., stride_w: _Optional[int] = ..., engine: _Optional[_Union[SqueezeConvolutionParameter.Engine, str]] = ..., axis: _Optional[int] = ..., force_nd_im2col: _Optional[bool] = ..., gamma: _Optional[float] = ..., power: _Optional[float] = ..., iter_stop: _Optional[float] = ..., c_rate: _Optional[float] = ..., weight_mask_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_mask_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., dilation: _Optional[_Iterable[int]] = ..., dynamicsplicing: _Optional[bool] = ..., splicing_rate: _Optional[float] = ..., pad_type: _Optional[int] = ..., pad_l: _Optional[int] = ..., pad_r: _Optional[int] = ..., pad_t: _Optional[int] = ..., pad_b: _Optional[int] = ..., input_scale: _Optional[float] = ..., output_scale: _Optional[float] = ..., saturate: _Optional[_Union[SqueezeConvolutionParameter.SaturateMethod, str]] = ..., weight_scale: _Optional[float] = ..., input_zero_point: _Optional[int] = ..., output_zero_point: _Optional[int] = ..., weight_zero_point: _Optional[int] = ..., per_channel_scale_weight: _Optional[bool] = ..., quantize_method: _Optional[_Union[SqueezeConvolutionParameter.QuantizeMethod, str]] = ..., per_channel_scale_output: _Optional[bool] = ..., submanifold_sparse: _Optional[bool] = ...) -> None: ...

class SqueezeInnerProductParameter(_message.Message):
    __slots__ = ("num_output", "bias_term", "weight_filler", "bias_filler", "axis", "transpose", "gamma", "power", "iter_stop", "c_rate", "weight_mask_filler", "bias_mask_filler", "dynamicsplicing", "splicing_rate")
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    BIAS_TERM_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    TRANSPOSE_FIELD_NUMBER: _ClassVar[int]
    GAMMA_FIELD_NUMBER: _ClassVar[int]
    POWER_FIELD_NUMBER: _ClassVar[int]
    ITER_STOP_FIELD_NUMBER: _ClassVar[int]
    C_RATE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_MASK_FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_MASK_FILLER_FIELD_NUMBER: _ClassVar[int]
    DYNAMICSPLICING_FIELD_NUMBER: _ClassVar[int]
    SPLICING_RATE_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    bias_term: bool
    weight_filler: FillerParameter
    bias_filler: FillerParameter
    axis: int
    transpose: bool
    gamma: float
    power: float
    iter_stop: float
    c_rate: float
    weight_mask_filler: FillerParameter
    bias_mask_filler: FillerParameter
    dynamicsplicing: bool
    splicing_rate: float
    def __init__(self, num_output: _Optional[int] = ..., bias_term: _Optional[bool] = ..., weight_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., axis: _Optional[int] = ..., transpose: _Optional[bool] = ..., gamma: _Optional[float] = ..., power: _Optional[float] = ..., iter_stop: _Optional[float] = ..., c_rate: _Optional[float] = ..., weight_mask_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_mask_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., dynamicsplicing: _Optional[bool] = ..., splicing_rate: _Optional[float] = ...) -> None: ...

class SqueezeParameter(_message.Message):
    __slots__ = ("axis",)
    AXIS_FIELD_NUMBER: _ClassVar[int]
    axis: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, axis: _Optional[_Iterable[int]] = ...) -> None: ...

class StackParameter(_message.Message):
    __slots__ = ("axis",)
    AXIS_FIELD_NUMBER: _ClassVar[int]
    axis: int
    def __init__(self, axis: _Optional[int] = ...) -> None: ...

class StridedSliceParameter(_message.Message):
    __slots__ = ("begin", "end", "strides", "axes", "begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    STRIDES_FIELD_NUMBER: _ClassVar[int]
    AXES_FIELD_NUMBER: _ClassVar[int]
    BEGIN_MASK_FIELD_NUMBER: _ClassVar[int]
    END_MASK_FIELD_NUMBER: _ClassVar[int]
    ELLIPSIS_MASK_FIELD_NUMBER: _ClassVar[int]
    NEW_AXIS_MASK_FIELD_NUMBER: _ClassVar[int]
    SHRINK_AXIS_MASK_FIELD_NUMBER: _ClassVar[int]
    begin: _containers.RepeatedScalarFieldContainer[int]
    end: _containers.RepeatedScalarFieldContainer[int]
    strides: _containers.RepeatedScalarFieldContainer[int]
    axes: _containers.RepeatedScalarFieldContainer[int]
    begin_mask: int
    end_mask: int
    ellipsis_mask: int
    new_axis_mask: int
    shrink_axis_mask: int
    def __init__(self, begin: _Optional[_Iterable[int]] = ..., end: _Optional[_Iterable[int]] = ..., strides: _Optional[_Iterable[int]] = ..., axes: _Optional[_Iterable[int]] = ..., begin_mask: _Optional[int] = ..., end_mask: _Optional[int] = ..., ellipsis_mask: _Optional[int] = ..., new_axis_mask: _Optional[int] = ..., shrink_axis_mask: _Optional[int] = ...) -> None: ...

class SubRegionParameter(_message.Message):
    __slots__ = ("region_height", "region_width", "data_height", "data_width", "as_dim")
    REGION_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    REGION_WIDTH_FIELD_NUMBER: _ClassVar[int]
    DATA_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    DATA_WIDTH_FIELD_NUMBER: _ClassVar[int]
    AS_DIM_FIELD_NUMBER: _ClassVar[int]
    region_height: int
    region_width: int
    data_height: int
    data_width: int
    as_dim: int
    def __init__(self, region_height: _Optional[int] = ..., region_width: _Optional[int] = ..., data_height: _Optional[int] = ..., data_width: _Optional[int] = ..., as_dim: _Optional[int] = ...) -> None: ...

class TRTParameter(_message.Message):
    __slots__ = ("trt_mode", "top_k", "deploy", "model", "deploy_outputs", "calibrator")
    class TRTMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        FP32: _ClassVar[TRTParameter.TRTMode]
        FP16: _ClassVar[TRTParameter.TRTMode]
        INT8: _ClassVar[TRTParameter.TRTMode]
    FP32: TRTParameter.TRTMode
    FP16: TRTParameter.TRTMode
    INT8: TRTParameter.TRTMode
    TRT_MODE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    DEPLOY_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DEPLOY_OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    CALIBRATOR_FIELD_NUMBER: _ClassVar[int]
    trt_mode: TRTParameter.TRTMode
    top_k: int
    deploy: str
    model: str
    deploy_outputs: _containers.RepeatedScalarFieldContainer[str]
    calibrator: str
    def __init__(self, trt_mode: _Optional[_Union[TRTParameter.TRTMode, str]] = ..., top_k: _Optional[int] = ..., deploy: _Optional[str] = ..., model: _Optional[str] = ..., deploy_outputs: _Optional[_Iterable[str]] = ..., calibrator: _Optional[str] = ...) -> None: ...

class Tensor2BoxParameter(_message.Message):
    __slots__ = ("num_classes", "img_dim_h", "img_dim_w", "anchors_x", "anchors_y")
    NUM_CLASSES_FIELD_NUMBER: _ClassVar[int]
    IMG_DIM_H_FIELD_NUMBER: _ClassVar[int]
    IMG_DIM_W_FIELD_NUMBER: _ClassVar[int]
    ANCHORS_X_FIELD_NUMBER: _ClassVar[int]
    ANCHORS_Y_FIELD_NUMBER: _ClassVar[int]
    num_classes: int
    img_dim_h: int
    img_dim_w: int
    anchors_x: _containers.RepeatedScalarFieldContainer[int]
    anchors_y: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, num_classes: _Optional[int] = ..., img_dim_h: _Optional[int] = ..., img_dim_w: _Optional[int] = ..., anchors_x: _Optional[_Iterable[int]] = ..., anchors_y: _Optional[_Iterable[int]] = ...) -> None: ...

class ThresholdedReLUParameter(_message.Message):
    __slots__ = ("alpha",)
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    alpha: float
    def __init__(self, alpha: _Optional[float] = ...) -> None: ...

class TileNDParameter(_message.Message):
    __slots__ = ("multiples",)
    MULTIPLES_FIELD_NUMBER: _ClassVar[int]
    multiples: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, multiples: _Optional[_Iterable[int]] = ...) -> None: ...

class TopkGatherParameter(_message.Message):
    __slots__ = ("top_k", "axis")
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    top_k: int
    axis: int
    def __init__(self, top_k: _Optional[int] = ..., axis: _Optional[int] = ...) -> None: ...

class TransposeParameter(_message.Message):
    __slots__ = ("dim",)
    DIM_FIELD_NUMBER: _ClassVar[int]
    dim: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, dim: _Optional[_Iterable[int]] = ...) -> None: ...

class TripletLossParameter(_message.Message):
    __slots__ = ("margin", "alpha", "pregen_label_start")
    MARGIN_FIELD_NUMBER: _ClassVar[int]
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    PREGEN_LABEL_START_FIELD_NUMBER: _ClassVar[int]
    margin: float
    alpha: float
    pregen_label_start: int
    def __init__(self, margin: _Optional[float] = ..., alpha: _Optional[float] = ..., pregen_label_start: _Optional[int] = ...) -> None: ...

class TruncationParameter(_message.Message):
    __slots__ = ("lower_bound", "upper_bound")
    LOWER_BOUND_FIELD_NUMBER: _ClassVar[int]
    UPPER_BOUND_FIELD_NUMBER: _ClassVar[int]
    lower_bound: float
    upper_bound: float
    def __init__(self, lower_bound: _Optional[float] = ..., upper_bound: _Optional[float] = ...) -> None: ...

class UniqueLabelParameter(_message.Message):
    __slots__ = ("max_labels", "ignore_label", "force_label")
    MAX_LABELS_FIELD_NUMBER: _ClassVar[int]
    IGNORE_LABEL_FIELD_NUMBER: _ClassVar[int]
    FORCE_LABEL_FIELD_NUMBER: _ClassVar[int]
    max_labels: int
    ignore_label: _containers.RepeatedScalarFieldContainer[int]
    force_label: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, max_labels: _Optional[int] = ..., ignore_label: _Optional[_Iterable[int]] = ..., force_label: _Optional[_Iterable[float]] = ...) -> None: ...

class UnpoolingParameter(_message.Message):
    __slots__ = ("unpool", "kernel_size", "stride", "pad", "kernel_h", "kernel_w", "stride_h", "stride_w", "pad_h", "pad_w", "engine", "unpool_size", "unpool_h", "unpool_w", "pool")
    class UnpoolMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MAX: _ClassVar[UnpoolingParameter.UnpoolMethod]
        AVE: _ClassVar[UnpoolingParameter.UnpoolMethod]
        TILE: _ClassVar[UnpoolingParameter.UnpoolMethod]
    MAX: UnpoolingParameter.UnpoolMethod
    AVE: UnpoolingParameter.UnpoolMethod
    TILE: UnpoolingParameter.UnpoolMethod
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[UnpoolingParameter.Engine]
        CAFFE: _ClassVar[UnpoolingParameter.Engine]
        CUDNN: _ClassVar[UnpoolingParameter.Engine]
    DEFAULT: UnpoolingParameter.Engine
    CAFFE: UnpoolingParameter.Engine
    CUDNN: UnpoolingParameter.Engine
    UNPOOL_FIELD_NUMBER: _ClassVar[int]
    KERNEL_SIZE_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    PAD_FIELD_NUMBER: _ClassVar[int]
    KERNEL_H_FIELD_NUMBER: _ClassVar[int]
    KERNEL_W_FIELD_NUMBER: _ClassVar[int]
    STRIDE_H_FIELD_NUMBER: _ClassVar[int]
    STRIDE_W_FIELD_NUMBER: _ClassVar[int]
    PAD_H_FIELD_NUMBER: _ClassVar[int]
    PAD_W_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    UNPOOL_SIZE_FIELD_NUMBER: _ClassVar[int]
    UNPOOL_H_FIELD_NUMBER: _ClassVar[int]
    UNPOOL_W_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    unpool: UnpoolingParameter.UnpoolMethod
    kernel_size: int
    stride: int
    pad: int
    kernel_h: int
    kernel_w: int
    stride_h: int
    stride_w: int
    pad_h: int
    pad_w: int
    engine: UnpoolingParameter.Engine
    unpool_size: int
    unpool_h: int
    unpool_w: int
    pool: UnpoolingParameter.UnpoolMethod
    def __init__(self, unpool: _Optional[_Union[UnpoolingParameter.UnpoolMethod, str]] = ..., kernel_size: _Optional[int] = ..., stride: _Optional[int] = ..., pad: _Optional[int] = ..., kernel_h: _Optional[int] = ..., kernel_w: _Optional[int] = ..., stride_h: _Optional[int] = ..., stride_w: _Optional[int] = ..., pad_h: _Optional[int] = ..., pad_w: _Optional[int] = ..., engine: _Optional[_Union[UnpoolingParameter.Engine, str]] = ..., unpool_size: _Optional[int] = ..., unpool_h: _Optional[int] = ..., unpool_w: _Optional[int] = ..., pool: _Optional[_Union[UnpoolingParameter.UnpoolMethod, str]] = ...) -> None: ...

class UnstackParameter(_message.Message):
    __slots__ = ("num", "axis")
    NUM_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    num: int
    axis: int
    def __init__(self, num: _Optional[int] = ..., axis: _Optional[int] = ...) -> None: ...

class UpsampleDarknetParameter(_message.Message):
    __slots__ = ("stride",)
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    stride: int
    def __init__(self, stride: _Optional[int] = ...) -> None: ...

class UpsampleParameter(_message.Message):
    __slots__ = ("scale", "scale_h", "scale_w", "pad_out_h", "pad_out_w", "upsample_h", "upsample_w")
    SCALE_FIELD_NUMBER: _ClassVar[int]
    SCALE_H_FIELD_NUMBER: _ClassVar[int]
    SCALE_W_FIELD_NUMBER: _ClassVar[int]
    PAD_OUT_H_FIELD_NUMBER: _ClassVar[int]
    PAD_OUT_W_FIELD_NUMBER: _ClassVar[int]
    UPSAMPLE_H_FIELD_NUMBER: _ClassVar[int]
    UPSAMPLE_W_FIELD_NUMBER: _ClassVar[int]
    scale: int
    scale_h: int
    scale_w: int
    pad_out_h: bool
    pad_out_w: bool
    upsample_h: int
    upsample_w: int
    def __init__(self, scale: _Optional[int] = ..., scale_h: _Optional[int] = ..., scale_w: _Optional[int] = ..., pad_out_h: _Optional[bool] = ..., pad_out_w: _Optional[bool] = ..., upsample_h: _Optional[int] = ..., upsample_w: _Optional[int] = ...) -> None: ...

class VideoDataParameter(_message.Message):
    __slots__ = ("video_type", "device_id", "video_file", "skip_frames", "crop_size", "mirror", "rand_skip", "shuffle", "new_height", "new_width", "is_color", "num_segments", "modality", "name_pattern", "encoded", "grayscale", "sampling_rate", "max_sampling_rate", "use_sampling_rate_jitter", "use_multiple_label", "num_of_labels", "batch_size", "mean_file", "new_length", "root_folder", "scale", "show_data", "source", "use_image", "use_temporal_jitter")
    class Modality(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        RGB: _ClassVar[VideoDataParameter.Modality]
        FLOW: _ClassVar[VideoDataParameter.Modality]
    RGB: VideoDataParameter.Modality
    FLOW: VideoDataParameter.Modality
    class VideoType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        WEBCAM: _ClassVar[VideoDataParameter.VideoType]
        VIDEO: _ClassVar[VideoDataParameter.VideoType]
    WEBCAM: VideoDataParameter.VideoType
    VIDEO: VideoDataParameter.VideoType
    VIDEO_TYPE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    VIDEO_FILE_FIELD_NUMBER: _ClassVar[int]
    SKIP_FRAMES_FIELD_NUMBER: _ClassVar[int]
    CROP_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    RAND_SKIP_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    NEW_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    NEW_WIDTH_FIELD_NUMBER: _ClassVar[int]
    IS_COLOR_FIELD_NUMBER: _ClassVar[int]
    NUM_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    MODALITY_FIELD_NUMBER: _ClassVar[int]
    NAME_PATTERN_FIELD_NUMBER: _ClassVar[int]
    ENCODED_FIELD_NUMBER: _ClassVar[int]
    GRAYSCALE_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_RATE_FIELD_NUMBER: _ClassVar[int]
    MAX_SAMPLING_RATE_FIELD_NUMBER: _ClassVar[int]
    USE_SAMPLING_RATE_JITTER_FIELD_NUMBER: _ClassVar[int]
    USE_MULTIPLE_LABEL_FIELD_NUMBER: _ClassVar[int]
    NUM_OF_LABELS_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    MEAN_FILE_FIELD_NUMBER: _ClassVar[int]
    NEW_LENGTH_FIELD_NUMBER: _ClassVar[int]
    ROOT_FOLDER_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    SHOW_DATA_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    USE_IMAGE_FIELD_NUMBER: _ClassVar[int]
    USE_TEMPORAL_JITTER_FIELD_NUMBER: _ClassVar[int]
    video_type: VideoDataParameter.VideoType
    device_id: int
    video_file: str
    skip_frames: int
    crop_size: int
    mirror: bool
    rand_skip: int
    shuffle: bool
    new_height: int
    new_width: int
    is_color: bool
    num_segments: int
    modality: VideoDataParameter.Modality
    name_pattern: str
    encoded: bool
    grayscale: bool
    sampling_rate: int
    max_sampling_rate: int
    use_sampling_rate_jitter: bool
    use_multiple_label: bool
    num_of_labels: int
    batch_size: int
    mean_file: str
    new_length: int
    root_folder: str
    scale: float
    show_data: bool
    source: str
    use_image: bool
    use_temporal_jitter: bool
    def __init__(self, video_type: _Optional[_Union[VideoDataParameter.VideoType, str]] = ..., device_id: _Optional[int] = ..., video_file: _Optional[str] = ..., skip_frames: _Optional[int] = ..., crop_size: _Optional[int] = ..., mirror: _Optional[bool] = ..., rand_skip: _Optional[int] = ..., shuffle: _Optional[bool] = ..., new_height: _Optional[int] = ..., new_width: _Optional[int] = ..., is_color: _Optional[bool] = ..., num_segments: _Optional[int] = ..., modality: _Optional[_Union[VideoDataParameter.Modality, str]] = ..., name_pattern: _Optional[str] = ..., encoded: _Optional[bool] = ..., grayscale: _Optional[bool] = ..., sampling_rate: _Optional[int] = ..., max_sampling_rate: _Optional[int] = ..., use_sampling_rate_jitter: _Optional[bool] = ..., use_multiple_label: _Optional[bool] = ..., num_of_labels: _Optional[int] = ..., batch_size: _Optional[int] = ..., mean_file: _Optional[str] = ..., new_length: _Optional[int] = ..., root_folder: _Optional[str] = ..., scale: _Optional[float] = ..., show_data: _Optional[bool] = ..., source: _Optional[str] = ..., use_image: _Optional[bool] = ..., use_temporal_jitter: _Optional[bool] = ...) -> None: ...

class VolumeDatum(_message.Message):
    __slots__ = ("channels", "length", "height", "width", "data", "label", "float_data")
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    FLOAT_DATA_FIELD_NUMBER: _ClassVar[int]
    channels: int
    length: int
    height: int
    width: int
    data: bytes
    label: int
    float_data: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, channels: _Optional[int] = ..., length: _Optional[int] = ..., height: _Optional[int] = ..., width: _Optional[int] = ..., data: _Optional[bytes] = ..., label: _Optional[int] = ..., float_data: _Optional[_Iterable[float]] = ...) -> None: ...

class Where4GatherndCropParameter(_message.Message):
    __slots__ = ("num_output", "axis", "crop_h", "crop_w", "extrapolation_value")
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    CROP_H_FIELD_NUMBER: _ClassVar[int]
    CROP_W_FIELD_NUMBER: _ClassVar[int]
    EXTRAPOLATION_VALUE_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    axis: int
    crop_h: int
    crop_w: int
    extrapolation_value: float
    def __init__(self, num_output: _Optional[int] = ..., axis: _Optional[int] = ..., crop_h: _Optional[int] = ..., crop_w: _Optional[int] = ..., extrapolation_value: _Optional[float] = ...) -> None: ...

class Where4GatherndParameter(_message.Message):
    __slots__ = ("num_output", "axis")
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    axis: int
    def __init__(self, num_output: _Optional[int] = ..., axis: _Optional[int] = ...) -> None: ...

class Where4Parameter(_message.Message):
    __slots__ = ("num_output", "axis")
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    axis: int
    def __init__(self, num_output: _Optional[int] = ..., axis: _Optional[int] = ...) -> None: ...

class WriterParameter(_message.Message):
    __slots__ = ("file", "folder", "prefix", "suffix", "normalize", "scale")
    FILE_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    SUFFIX_FIELD_NUMBER: _ClassVar[int]
    NORMALIZE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    file: str
    folder: str
    prefix: str
    suffix: str
    normalize: bool
    scale: float
    def __init__(self, file: _Optional[str] = ..., folder: _Optional[str] = ..., prefix: _Optional[str] = ..., suffix: _Optional[str] = ..., normalize: _Optional[bool] = ..., scale: _Optional[float] = ...) -> None: ...

class XLUParameter(_message.Message):
    __slots__ = ("negative_slope", "engine", "relu6", "saturate", "maximum", "minimum")
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[XLUParameter.Engine]
        CAFFE: _ClassVar[XLUParameter.Engine]
        CUDNN: _ClassVar[XLUParameter.Engine]
    DEFAULT: XLUParameter.Engine
    CAFFE: XLUParameter.Engine
    CUDNN: XLUParameter.Engine
    class SaturateMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        Signed: _ClassVar[XLUParameter.SaturateMethod]
        Unsigned: _ClassVar[XLUParameter.SaturateMethod]
        Signed_8bit: _ClassVar[XLUParameter.SaturateMethod]
        Unsigned_8bit: _ClassVar[XLUParameter.SaturateMethod]
    Signed: XLUParameter.SaturateMethod
    Unsigned: XLUParameter.SaturateMethod
    Signed_8bit: XLUParameter.SaturateMethod
    Unsigned_8bit: XLUParameter.SaturateMethod
    NEGATIVE_SLOPE_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    RELU6_FIELD_NUMBER: _ClassVar[int]
    SATURATE_FIELD_NUMBER: _ClassVar[int]
    MAXIMUM_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_FIELD_NUMBER: _ClassVar[int]
    negative_slope: float
    engine: XLUParameter.Engine
    relu6: bool
    saturate: XLUParameter.SaturateMethod
    maximum: float
    minimum: float
    def __init__(self, negative_slope: _Optional[float] = ..., engine: _Optional[_Union[XLUParameter.Engine, str]] = ..., relu6: _Optional[bool] = ..., saturate: _Optional[_Union[XLUParameter.SaturateMethod, str]] = ..., maximum: _Optional[float] = ..., minimum: _Optional[float] = ...) -> None: ...

class YoloDetectionOutputParameter(_message.Message):
    __slots__ = ("side", "num_classes", "num_box", "coords", "confidence_threshold", "nms_threshold", "biases", "label_map_file")
    SIDE_FIELD_NUMBER: _ClassVar[int]
    NUM_CLASSES_FIELD_NUMBER: _ClassVar[int]
    NUM_BOX_FIELD_NUMBER: _ClassVar[int]
    COORDS_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    NMS_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    BIASES_FIELD_NUMBER: _ClassVar[int]
    LABEL_MAP_FILE_FIELD_NUMBER: _ClassVar[int]
    side: int
    num_classes: int
    num_box: int
    coords: int
    confidence_threshold: float
    nms_threshold: float
    biases: _containers.RepeatedScalarFieldContainer[float]
    label_map_file: str
    def __init__(self, side: _Optional[int] = ..., num_classes: _Optional[int] = ..., num_box: _Optional[int] = ..., coords: _Optional[int] = ..., confidence_threshold: _Optional[float] = ..., nms_threshold: _Optional[float] = ..., biases: _Optional[_Iterable[float]] = ..., label_map_file: _Optional[str] = ...) -> None: ...

class YoloSegItem(_message.Message):
    __slots__ = ("name", "label_id", "label", "r", "g", "b")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LABEL_ID_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    R_FIELD_NUMBER: _ClassVar[int]
    G_FIELD_NUMBER: _ClassVar[int]
    B_FIELD_NUMBER: _ClassVar[int]
    name: str
    label_id: int
    label: int
    r: int
    g: int
    b: int
    def __init__(self, name: _Optional[str] = ..., label_id: _Optional[int] = ..., label: _Optional[int] = ..., r: _Optional[int] = ..., g: _Optional[int] = ..., b: _Optional[int] = ...) -> None: ...

class YoloSegLabel(_message.Message):
    __slots__ = ("item",)
    ITEM_FIELD_NUMBER: _ClassVar[int]
    item: _containers.RepeatedCompositeFieldContainer[YoloSegItem]
    def __init__(self, item: _Optional[_Iterable[_Union[YoloSegItem, _Mapping]]] = ...) -> None: ...

class YoloSegParameter(_message.Message):
    __slots__ = ("num_class", "object_scale", "class_scale", "use_logic_gradient", "use_hardsigmoid")
    NUM_CLASS_FIELD_NUMBER: _ClassVar[int]
    OBJECT_SCALE_FIELD_NUMBER: _ClassVar[int]
    CLASS_SCALE_FIELD_NUMBER: _ClassVar[int]
    USE_LOGIC_GRADIENT_FIELD_NUMBER: _ClassVar[int]
    USE_HARDSIGMOID_FIELD_NUMBER: _ClassVar[int]
    num_class: int
    object_scale: float
    class_scale: float
    use_logic_gradient: bool
    use_hardsigmoid: bool
    def __init__(self, num_class: _Optional[int] = ..., object_scale: _Optional[float] = ..., class_scale: _Optional[float] = ..., use_logic_gradient: _Optional[bool] = ..., use_hardsigmoid: _Optional[bool] = ...) -> None: ...

class YoloV2LossParameter(_message.Message):
    __slots__ = ("anchors", "side", "num_classes", "num_object", "box_scale", "class_scale", "noobject_scale", "object_scale", "rescore", "constraint", "thresh")
    ANCHORS_FIELD_NUMBER: _ClassVar[int]
    SIDE_FIELD_NUMBER: _ClassVar[int]
    NUM_CLASSES_FIELD_NUMBER: _ClassVar[int]
    NUM_OBJECT_FIELD_NUMBER: _ClassVar[int]
    BOX_SCALE_FIELD_NUMBER: _ClassVar[int]
    CLASS_SCALE_FIELD_NUMBER: _ClassVar[int]
    NOOBJECT_SCALE_FIELD_NUMBER: _ClassVar[int]
    OBJECT_SCALE_FIELD_NUMBER: _ClassVar[int]
    RESCORE_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    THRESH_FIELD_NUMBER: _ClassVar[int]
    anchors: _containers.RepeatedScalarFieldContainer[float]
    side: int
    num_classes: int
    num_object: int
    box_scale: float
    class_scale: float
    noobject_scale: float
    object_scale: float
    rescore: bool
    constraint: bool
    thresh: float
    def __init__(self, anchors: _Optional[_Iterable[float]] = ..., side: _Optional[int] = ..., num_classes: _Optional[int] = ..., num_object: _Optional[int] = ..., box_scale: _Optional[float] = ..., class_scale: _Optional[float] = ..., noobject_scale: _Optional[float] = ..., object_scale: _Optional[float] = ..., rescore: _Optional[bool] = ..., constraint: _Optional[bool] = ..., thresh: _Optional[float] = ...) -> None: ...

class YoloV3LossParameter(_message.Message):
    __slots__ = ("anchors", "mask", "side", "num_classes", "num_object", "total_object", "ignore_thresh", "truth_thresh", "net_w", "net_h")
    ANCHORS_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    SIDE_FIELD_NUMBER: _ClassVar[int]
    NUM_CLASSES_FIELD_NUMBER: _ClassVar[int]
    NUM_OBJECT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_OBJECT_FIELD_NUMBER: _ClassVar[int]
    IGNORE_THRESH_FIELD_NUMBER: _ClassVar[int]
    TRUTH_THRESH_FIELD_NUMBER: _ClassVar[int]
    NET_W_FIELD_NUMBER: _ClassVar[int]
    NET_H_FIELD_NUMBER: _ClassVar[int]
    anchors: _containers.RepeatedScalarFieldContainer[int]
    mask: _containers.RepeatedScalarFieldContainer[int]
    side: int
    num_classes: int
    num_object: int
    total_object: int
    ignore_thresh: float
    truth_thresh: float
    net_w: int
    net_h: int
    def __init__(self, anchors: _Optional[_Iterable[int]] = ..., mask: _Optional[_Iterable[int]] = ..., side: _Optional[int] = ..., num_classes: _Optional[int] = ..., num_object: _Optional[int] = ..., total_object: _Optional[int] = ..., ignore_thresh: _Optional[float] = ..., truth_thresh: _Optional[float] = ..., net_w: _Optional[int] = ..., net_h: _Optional[int] = ...) -> None: ...

class Yolov3DetectionOutputParameter(_message.Message):
    __slots__ = ("num_classes", "num_box", "confidence_threshold", "nms_threshold", "biases", "anchors_scale", "mask_group_num", "mask", "gaussian_box")
    NUM_CLASSES_FIELD_NUMBER: _ClassVar[int]
    NUM_BOX_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    NMS_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    BIASES_FIELD_NUMBER: _ClassVar[int]
    ANCHORS_SCALE_FIELD_NUMBER: _ClassVar[int]
    MASK_GROUP_NUM_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    GAUSSIAN_BOX_FIELD_NUMBER: _ClassVar[int]
    num_classes: int
    num_box: int
    confidence_threshold: float
    nms_threshold: float
    biases: _containers.RepeatedScalarFieldContainer[float]
    anchors_scale: _containers.RepeatedScalarFieldContainer[int]
    mask_group_num: int
    mask: _containers.RepeatedScalarFieldContainer[int]
    gaussian_box: bool
    def __init__(self, num_classes: _Optional[int] = ..., num_box: _Optional[int] = ..., confidence_threshold: _Optional[float] = ..., nms_threshold: _Optional[float] = ..., biases: _Optional[_Iterable[float]] = ..., anchors_scale: _Optional[_Iterable[int]] = ..., mask_group_num: _Optional[int] = ..., mask: _Optional[_Iterable[int]] = ..., gaussian_box: _Optional[bool] = ...) -> None: ...

class Yolov3Parameter(_message.Message):
    __slots__ = ("side", "num_class", "num", "object_scale", "class_scale", "noobject_scale", "coord_scale", "thresh", "anchors_scale", "biases", "mask", "use_logic_gradient", "use_focal_loss", "iou_loss", "iou_normalizer", "iou_thresh", "max_delta", "accumulate", "label_smooth_eps")
    class IOU_LOSS(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        IOU: _ClassVar[Yolov3Parameter.IOU_LOSS]
        GIOU: _ClassVar[Yolov3Parameter.IOU_LOSS]
        MSE: _ClassVar[Yolov3Parameter.IOU_LOSS]
        DIOU: _ClassVar[Yolov3Parameter.IOU_LOSS]
        CIOU: _ClassVar[Yolov3Parameter.IOU_LOSS]
    IOU: Yolov3Parameter.IOU_LOSS
    GIOU: Yolov3Parameter.IOU_LOSS
    MSE: Yolov3Parameter.IOU_LOSS
    DIOU: Yolov3Parameter.IOU_LOSS
    CIOU: Yolov3Parameter.IOU_LOSS
    SIDE_FIELD_NUMBER: _ClassVar[int]
    NUM_CLASS_FIELD_NUMBER: _ClassVar[int]
    NUM_FIELD_NUMBER: _ClassVar[int]
    OBJECT_SCALE_FIELD_NUMBER: _ClassVar[int]
    CLASS_SCALE_FIELD_NUMBER: _ClassVar[int]
    NOOBJECT_SCALE_FIELD_NUMBER: _ClassVar[int]
    COORD_SCALE_FIELD_NUMBER: _ClassVar[int]
    THRESH_FIELD_NUMBER: _ClassVar[int]
    ANCHORS_SCALE_FIELD_NUMBER: _ClassVar[int]
    BIASES_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    USE_LOGIC_GRADIENT_FIELD_NUMBER: _ClassVar[int]
    USE_FOCAL_LOSS_FIELD_NUMBER: _ClassVar[int]
    IOU_LOSS_FIELD_NUMBER: _ClassVar[int]
    IOU_NORMALIZER_FIELD_NUMBER: _ClassVar[int]
    IOU_THRESH_FIELD_NUMBER: _ClassVar[int]
    MAX_DELTA_FIELD_NUMBER: _ClassVar[int]
    ACCUMULATE_FIELD_NUMBER: _ClassVar[int]
    LABEL_SMOOTH_EPS_FIELD_NUMBER: _ClassVar[int]
    side: int
    num_class: int
    num: int
    object_scale: float
    class_scale: float
    noobject_scale: float
    coord_scale: float
    thresh: float
    anchors_scale: int
    biases: _containers.RepeatedScalarFieldContainer[float]
    mask: _containers.RepeatedScalarFieldContainer[int]
    use_logic_gradient: bool
    use_focal_loss: bool
    iou_loss: Yolov3Parameter.IOU_LOSS
    iou_normalizer: float
    iou_thresh: float
    max_delta: float
    accumulate: bool
    label_smooth_eps: float
    def __init__(self, side: _Optional[int] = ..., num_class: _Optional[int] = ..., num: _Optional[int] = ..., object_scale: _Optional[float] = ..., class_scale: _Optional[float] = ..., noobject_scale: _Optional[float] = ..., coord_scale: _Optional[float] = ..., thresh: _Optional[float] = ..., anchors_scale: _Optional[int] = ..., biases: _Optional[_Iterable[float]] = ..., mask: _Optional[_Iterable[int]] = ..., use_logic_gradient: _Optional[bool] = ..., use_focal_loss: _Optional[bool] = ..., iou_loss: _Optional[_Union[Yolov3Parameter.IOU_LOSS, str]] = ..., iou_normalizer: _Optional[float] = ..., iou_thresh: _Optional[float] = ..., max_delta: _Optional[float] = ..., accumulate: _Optional[bool] = ..., label_smooth_eps: _Optional[float] = ...) -> None: ...

class ContinuationIndicatorParameter(_message.Message):
    __slots__ = ("time_step", "batch_size")
    TIME_STEP_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    time_step: int
    batch_size: int
    def __init__(self, time_step: _Optional[int] = ..., batch_size: _Optional[int] = ...) -> None: ...

class CtcLossParameter(_message.Message):
    __slots__ = ("alphabet_size", "time_step", "blank_label")
    ALPHABET_SIZE_FIELD_NUMBER: _ClassVar[int]
    TIME_STEP_FIELD_NUMBER: _ClassVar[int]
    BLANK_LABEL_FIELD_NUMBER: _ClassVar[int]
    alphabet_size: int
    time_step: int
    blank_label: int
    def __init__(self, alphabet_size: _Optional[int] = ..., time_step: _Optional[int] = ..., blank_label: _Optional[int] = ...) -> None: ...

class LabelsequenceAccuracyParameter(_message.Message):
    __slots__ = ("blank_label",)
    BLANK_LABEL_FIELD_NUMBER: _ClassVar[int]
    blank_label: int
    def __init__(self, blank_label: _Optional[int] = ...) -> None: ...

class LSTMParameter(_message.Message):
    __slots__ = ("num_output", "clipping_threshold", "weight_filler", "bias_filler", "batch_size", "enable_clockwork_forgetgate_bias")
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    CLIPPING_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    ENABLE_CLOCKWORK_FORGETGATE_BIAS_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    clipping_threshold: float
    weight_filler: FillerParameter
    bias_filler: FillerParameter
    batch_size: int
    enable_clockwork_forgetgate_bias: bool
    def __init__(self, num_output: _Optional[int] = ..., clipping_threshold: _Optional[float] = ..., weight_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., batch_size: _Optional[int] = ..., enable_clockwork_forgetgate_bias: _Optional[bool] = ...) -> None: ...

class DenseBlockParameter(_message.Message):
    __slots__ = ("numTransition", "initChannel", "growthRate", "pad_h", "pad_w", "conv_verticalStride", "conv_horizentalStride", "filter_H", "filter_W", "Filter_Filler", "BN_Scaler_Filler", "BN_Bias_Filler", "gpuIdx", "use_dropout", "dropout_amount", "use_BC", "BC_ultra_space_efficient", "workspace_MB", "moving_average_fraction")
    NUMTRANSITION_FIELD_NUMBER: _ClassVar[int]
    INITCHANNEL_FIELD_NUMBER: _ClassVar[int]
    GROWTHRATE_FIELD_NUMBER: _ClassVar[int]
    PAD_H_FIELD_NUMBER: _ClassVar[int]
    PAD_W_FIELD_NUMBER: _ClassVar[int]
    CONV_VERTICALSTRIDE_FIELD_NUMBER: _ClassVar[int]
    CONV_HORIZENTALSTRIDE_FIELD_NUMBER: _ClassVar[int]
    FILTER_H_FIELD_NUMBER: _ClassVar[int]
    FILTER_W_FIELD_NUMBER: _ClassVar[int]
    FILTER_FILLER_FIELD_NUMBER: _ClassVar[int]
    BN_SCALER_FILLER_FIELD_NUMBER: _ClassVar[int]
    BN_BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    GPUIDX_FIELD_NUMBER: _ClassVar[int]
    USE_DROPOUT_FIELD_NUMBER: _ClassVar[int]
    DROPOUT_AMOUNT_FIELD_NUMBER: _ClassVar[int]
    USE_BC_FIELD_NUMBER: _ClassVar[int]
    BC_ULTRA_SPACE_EFFICIENT_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_MB_FIELD_NUMBER: _ClassVar[int]
    MOVING_AVERAGE_FRACTION_FIELD_NUMBER: _ClassVar[int]
    numTransition: int
    initChannel: int
    growthRate: int
    pad_h: int
    pad_w: int
    conv_verticalStride: int
    conv_horizentalStride: int
    filter_H: int
    filter_W: int
    Filter_Filler: FillerParameter
    BN_Scaler_Filler: FillerParameter
    BN_Bias_Filler: FillerParameter
    gpuIdx: int
    use_dropout: bool
    dropout_amount: float
    use_BC: bool
    BC_ultra_space_efficient: bool
    workspace_MB: int
    moving_average_fraction: float
    def __init__(self, numTransition: _Optional[int] = ..., initChannel: _Optional[int] = ..., growthRate: _Optional[int] = ..., pad_h: _Optional[int] = ..., pad_w: _Optional[int] = ..., conv_verticalStride: _Optional[int] = ..., conv_horizentalStride: _Optional[int] = ..., filter_H: _Optional[int] = ..., filter_W: _Optional[int] = ..., Filter_Filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., BN_Scaler_Filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., BN_Bias_Filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., gpuIdx: _Optional[int] = ..., use_dropout: _Optional[bool] = ..., dropout_amount: _Optional[float] = ..., use_BC: _Optional[bool] = ..., BC_ultra_space_efficient: _Optional[bool] = ..., workspace_MB: _Optional[int] = ..., moving_average_fraction: _Optional[float] = ...) -> None: ...

class CTCDecoderParameter(_message.Message):
    __slots__ = ("blank_index", "ctc_merge_repeated")
    BLANK_INDEX_FIELD_NUMBER: _ClassVar[int]
    CTC_MERGE_REPEATED_FIELD_NUMBER: _ClassVar[int]
    blank_index: int
    ctc_merge_repeated: bool
    def __init__(self, blank_index: _Optional[int] = ..., ctc_merge_repeated: _Optional[bool] = ...) -> None: ...

class CosinAddmParameter(_message.Message):
    __slots__ = ("m", "transform_test")
    M_FIELD_NUMBER: _ClassVar[int]
    TRANSFORM_TEST_FIELD_NUMBER: _ClassVar[int]
    m: float
    transform_test: bool
    def __init__(self, m: _Optional[float] = ..., transform_test: _Optional[bool] = ...) -> None: ...

class GradientScalerParameter(_message.Message):
    __slots__ = ("lower_bound", "upper_bound", "alpha", "max_iter")
    LOWER_BOUND_FIELD_NUMBER: _ClassVar[int]
    UPPER_BOUND_FIELD_NUMBER: _ClassVar[int]
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    MAX_ITER_FIELD_NUMBER: _ClassVar[int]
    lower_bound: float
    upper_bound: float
    alpha: float
    max_iter: float
    def __init__(self, lower_bound: _Optional[float] = ..., upper_bound: _Optional[float] = ..., alpha: _Optional[float] = ..., max_iter: _Optional[float] = ...) -> None: ...

class OptionalParameter(_message.Message):
    __slots__ = ("active",)
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    active: bool
    def __init__(self, active: _Optional[bool] = ...) -> None: ...

class DebugParameter(_message.Message):
    __slots__ = ("max_stored_batches", "item_index")
    MAX_STORED_BATCHES_FIELD_NUMBER: _ClassVar[int]
    ITEM_INDEX_FIELD_NUMBER: _ClassVar[int]
    max_stored_batches: int
    item_index: int
    def __init__(self, max_stored_batches: _Optional[int] = ..., item_index: _Optional[int] = ...) -> None: ...

class DataSequenceParameter(_message.Message):
    __slots__ = ("cache_size", "k", "output_labels", "label_count", "label_start", "balance_matches")
    CACHE_SIZE_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_LABELS_FIELD_NUMBER: _ClassVar[int]
    LABEL_COUNT_FIELD_NUMBER: _ClassVar[int]
    LABEL_START_FIELD_NUMBER: _ClassVar[int]
    BALANCE_MATCHES_FIELD_NUMBER: _ClassVar[int]
    cache_size: int
    k: int
    output_labels: bool
    label_count: int
    label_start: int
    balance_matches: bool
    def __init__(self, cache_size: _Optional[int] = ..., k: _Optional[int] = ..., output_labels: _Optional[bool] = ..., label_count: _Optional[int] = ..., label_start: _Optional[int] = ..., balance_matches: _Optional[bool] = ...) -> None: ...

class DecodeParameter(_message.Message):
    __slots__ = ("centroid_output_iteration", "enable_centroid_update", "cache_size", "output_centroids", "pregen_alpha", "pregen_label_count", "ignore_label", "target", "k", "ignore_labels")
    class Target(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PREGEN: _ClassVar[DecodeParameter.Target]
        CENTROID: _ClassVar[DecodeParameter.Target]
        KNN: _ClassVar[DecodeParameter.Target]
    PREGEN: DecodeParameter.Target
    CENTROID: DecodeParameter.Target
    KNN: DecodeParameter.Target
    CENTROID_OUTPUT_ITERATION_FIELD_NUMBER: _ClassVar[int]
    ENABLE_CENTROID_UPDATE_FIELD_NUMBER: _ClassVar[int]
    CACHE_SIZE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_CENTROIDS_FIELD_NUMBER: _ClassVar[int]
    PREGEN_ALPHA_FIELD_NUMBER: _ClassVar[int]
    PREGEN_LABEL_COUNT_FIELD_NUMBER: _ClassVar[int]
    IGNORE_LABEL_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    IGNORE_LABELS_FIELD_NUMBER: _ClassVar[int]
    centroid_output_iteration: int
    enable_centroid_update: bool
    cache_size: int
    output_centroids: bool
    pregen_alpha: float
    pregen_label_count: int
    ignore_label: _containers.RepeatedScalarFieldContainer[int]
    target: DecodeParameter.Target
    k: int
    ignore_labels: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, centroid_output_iteration: _Optional[int] = ..., enable_centroid_update: _Optional[bool] = ..., cache_size: _Optional[int] = ..., output_centroids: _Optional[bool] = ..., pregen_alpha: _Optional[float] = ..., pregen_label_count: _Optional[int] = ..., ignore_label: _Optional[_Iterable[int]] = ..., target: _Optional[_Union[DecodeParameter.Target, str]] = ..., k: _Optional[int] = ..., ignore_labels: _Optional[_Iterable[int]] = ...) -> None: ...

class KnnParameter(_message.Message):
    __slots__ = ("num_output", "k", "max_stored_batches")
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    MAX_STORED_BATCHES_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    k: int
    max_stored_batches: int
    def __init__(self, num_output: _Optional[int] = ..., k: _Optional[int] = ..., max_stored_batches: _Optional[int] = ...) -> None: ...

class MaskParameter(_message.Message):
    __slots__ = ("option", "active", "boundary_left", "boundary_right", "boundary_top", "boundary_bottom")
    OPTION_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    BOUNDARY_LEFT_FIELD_NUMBER: _ClassVar[int]
    BOUNDARY_RIGHT_FIELD_NUMBER: _ClassVar[int]
    BOUNDARY_TOP_FIELD_NUMBER: _ClassVar[int]
    BOUNDARY_BOTTOM_FIELD_NUMBER: _ClassVar[int]
    option: OptionalParameter
    active: bool
    boundary_left: int
    boundary_right: int
    boundary_top: int
    boundary_bottom: int
    def __init__(self, option: _Optional[_Union[OptionalParameter, _Mapping]] = ..., active: _Optional[bool] = ..., boundary_left: _Optional[int] = ..., boundary_right: _Optional[int] = ..., boundary_top: _Optional[int] = ..., boundary_bottom: _Optional[int] = ...) -> None: ...

class LabelMappingParameter(_message.Message):
    __slots__ = ("option", "active", "mapping", "update_database", "reset_database_labels", "label_boosts")
    OPTION_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    MAPPING_FIELD_NUMBER: _ClassVar[int]
    UPDATE_DATABASE_FIELD_NUMBER: _ClassVar[int]
    RESET_DATABASE_LABELS_FIELD_NUMBER: _ClassVar[int]
    LABEL_BOOSTS_FIELD_NUMBER: _ClassVar[int]
    option: OptionalParameter
    active: bool
    mapping: _containers.RepeatedCompositeFieldContainer[LabelMapping]
    update_database: bool
    reset_database_labels: bool
    label_boosts: str
    def __init__(self, option: _Optional[_Union[OptionalParameter, _Mapping]] = ..., active: _Optional[bool] = ..., mapping: _Optional[_Iterable[_Union[LabelMapping, _Mapping]]] = ..., update_database: _Optional[bool] = ..., reset_database_labels: _Optional[bool] = ..., label_boosts: _Optional[str] = ...) -> None: ...

class LabelMapping(_message.Message):
    __slots__ = ("original", "mapped")
    ORIGINAL_FIELD_NUMBER: _ClassVar[int]
    MAPPED_FIELD_NUMBER: _ClassVar[int]
    original: int
    mapped: int
    def __init__(self, original: _Optional[int] = ..., mapped: _Optional[int] = ...) -> None: ...

class MaxBottomCount(_message.Message):
    __slots__ = ("phase", "count")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    phase: Phase
    count: int
    def __init__(self, phase: _Optional[_Union[Phase, str]] = ..., count: _Optional[int] = ...) -> None: ...

class CPMTransformationParameter(_message.Message):
    __slots__ = ("scale", "mirror", "crop_size", "mean_file", "mean_value", "stride", "scale_cvg", "max_cvg_len", "min_cvg_len", "opaque_coverage", "coverage", "flip_prob", "max_rotate_degree", "visualize", "crop_size_x", "crop_size_y", "scale_prob", "scale_min", "scale_max", "bbox_norm_factor", "img_header", "force_color", "force_gray", "target_dist", "center_perterb_max", "sigma", "sigma_center", "clahe_tile_size", "clahe_clip_limit", "do_clahe", "num_parts", "num_total_augs", "aug_way", "gray", "np_in_lmdb", "transform_body_joint", "put_gaussian", "visualize_label")
    SCALE_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    CROP_SIZE_FIELD_NUMBER: _ClassVar[int]
    MEAN_FILE_FIELD_NUMBER: _ClassVar[int]
    MEAN_VALUE_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    SCALE_CVG_FIELD_NUMBER: _ClassVar[int]
    MAX_CVG_LEN_FIELD_NUMBER: _ClassVar[int]
    MIN_CVG_LEN_FIELD_NUMBER: _ClassVar[int]
    OPAQUE_COVERAGE_FIELD_NUMBER: _ClassVar[int]
    COVERAGE_FIELD_NUMBER: _ClassVar[int]
    FLIP_PROB_FIELD_NUMBER: _ClassVar[int]
    MAX_ROTATE_DEGREE_FIELD_NUMBER: _ClassVar[int]
    VISUALIZE_FIELD_NUMBER: _ClassVar[int]
    CROP_SIZE_X_FIELD_NUMBER: _ClassVar[int]
    CROP_SIZE_Y_FIELD_NUMBER: _ClassVar[int]
    SCALE_PROB_FIELD_NUMBER: _ClassVar[int]
    SCALE_MIN_FIELD_NUMBER: _ClassVar[int]
    SCALE_MAX_FIELD_NUMBER: _ClassVar[int]
    BBOX_NORM_FACTOR_FIELD_NUMBER: _ClassVar[int]
    IMG_HEADER_FIELD_NUMBER: _ClassVar[int]
    FORCE_COLOR_FIELD_NUMBER: _ClassVar[int]
    FORCE_GRAY_FIELD_NUMBER: _ClassVar[int]
    TARGET_DIST_FIELD_NUMBER: _ClassVar[int]
    CENTER_PERTERB_MAX_FIELD_NUMBER: _ClassVar[int]
    SIGMA_FIELD_NUMBER: _ClassVar[int]
    SIGMA_CENTER_FIELD_NUMBER: _ClassVar[int]
    CLAHE_TILE_SIZE_FIELD_NUMBER: _ClassVar[int]
    CLAHE_CLIP_LIMIT_FIELD_NUMBER: _ClassVar[int]
    DO_CLAHE_FIELD_NUMBER: _ClassVar[int]
    NUM_PARTS_FIELD_NUMBER: _ClassVar[int]
    NUM_TOTAL_AUGS_FIELD_NUMBER: _ClassVar[int]
    AUG_WAY_FIELD_NUMBER: _ClassVar[int]
    GRAY_FIELD_NUMBER: _ClassVar[int]
    NP_IN_LMDB_FIELD_NUMBER: _ClassVar[int]
    TRANSFORM_BODY_JOINT_FIELD_NUMBER: _ClassVar[int]
    PUT_GAUSSIAN_FIELD_NUMBER: _ClassVar[int]
    VISUALIZE_LABEL_FIELD_NUMBER: _ClassVar[int]
    scale: float
    mirror: bool
    crop_size: int
    mean_file: str
    mean_value: _containers.RepeatedScalarFieldContainer[float]
    stride: int
    scale_cvg: float
    max_cvg_len: int
    min_cvg_len: int
    opaque_coverage: bool
    coverage: str
    flip_prob: float
    max_rotate_degree: float
    visualize: bool
    crop_size_x: int
    crop_size_y: int
    scale_prob: float
    scale_min: float
    scale_max: float
    bbox_norm_factor: float
    img_header: str
    force_color: bool
    force_gray: bool
    target_dist: float
    center_perterb_max: float
    sigma: float
    sigma_center: float
    clahe_tile_size: float
    clahe_clip_limit: float
    do_clahe: bool
    num_parts: int
    num_total_augs: int
    aug_way: str
    gray: int
    np_in_lmdb: int
    transform_body_joint: bool
    put_gaussian: bool
    visualize_label: bool
    def __init__(self, scale: _Optional[float] = ..., mirror: _Optional[bool] = ..., crop_size: _Optional[int] = ..., mean_file: _Optional[str] = ..., mean_value: _Optional[_Iterable[float]] = ..., stride: _Optional[int] = ..., scale_cvg: _Optional[float] = ..., max_cvg_len: _Optional[int] = ..., min_cvg_len: _Optional[int] = ..., opaque_coverage: _Optional[bool] = ..., coverage: _Optional[str] = ..., flip_prob: _Optional[float] = ..., max_rotate_degree: _Optional[float] = ..., visualize: _Optional[bool] = ..., crop_size_x: _Optional[int] = ..., crop_size_y: _Optional[int] = ..., scale_prob: _Optional[float] = ..., scale_min: _Optional[float] = ..., scale_max: _Optional[float] = ..., bbox_norm_factor: _Optional[float] = ..., img_header: _Optional[str] = ..., force_color: _Optional[bool] = ..., force_gray: _Optional[bool] = ..., target_dist: _Optional[float] = ..., center_perterb_max: _Optional[float] = ..., sigma: _Optional[float] = ..., sigma_center: _Optional[float] = ..., clahe_tile_size: _Optional[float] = ..., clahe_clip_limit: _Optional[float] = ..., do_clahe: _Optional[bool] = ..., num_parts: _Optional[int] = ..., num_total_augs: _Optional[int] = ..., aug_way: _Optional[str] = ..., gray: _Optional[int] = ..., np_in_lmdb: _Optional[int] = ..., transform_body_joint: _Optional[bool] = ..., put_gaussian: _Optional[bool] = ..., visualize_label: _Optional[bool] = ...) -> None: ...

class CPMDataParameter(_message.Message):
    __slots__ = ("source", "scale", "mean_file", "batch_size", "crop_size", "mirror", "rand_skip", "backend", "force_encoded_color", "prefetch", "lbl_source")
    class DB(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        LEVELDB: _ClassVar[CPMDataParameter.DB]
        LMDB: _ClassVar[CPMDataParameter.DB]
    LEVELDB: CPMDataParameter.DB
    LMDB: CPMDataParameter.DB
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    MEAN_FILE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    CROP_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    RAND_SKIP_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    FORCE_ENCODED_COLOR_FIELD_NUMBER: _ClassVar[int]
    PREFETCH_FIELD_NUMBER: _ClassVar[int]
    LBL_SOURCE_FIELD_NUMBER: _ClassVar[int]
    source: str
    scale: float
    mean_file: str
    batch_size: int
    crop_size: int
    mirror: bool
    rand_skip: int
    backend: CPMDataParameter.DB
    force_encoded_color: bool
    prefetch: int
    lbl_source: str
    def __init__(self, source: _Optional[str] = ..., scale: _Optional[float] = ..., mean_file: _Optional[str] = ..., batch_size: _Optional[int] = ..., crop_size: _Optional[int] = ..., mirror: _Optional[bool] = ..., rand_skip: _Optional[int] = ..., backend: _Optional[_Union[CPMDataParameter.DB, str]] = ..., force_encoded_color: _Optional[bool] = ..., prefetch: _Optional[int] = ..., lbl_source: _Optional[str] = ...) -> None: ...

class FilterParameter(_message.Message):
    __slots__ = ("num_output", "axis")
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    axis: int
    def __init__(self, num_output: _Optional[int] = ..., axis: _Optional[int] = ...) -> None: ...
