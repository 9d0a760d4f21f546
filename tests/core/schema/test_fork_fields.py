"""The table of ignored settings names only fields of forks."""

from caffejax.core.schema import caffe_pb2, ignored_fields, unknown_settings
from caffejax.core.schema.fork_fields import IGNORED_FIELDS, load_fork_fields


def test_ignored_fields_are_fields_of_forks_and_have_a_reason() -> None:
    for message, fields in IGNORED_FIELDS.items():
        assert set(fields) <= set(load_fork_fields()[message]), message
        assert all(fields.values())


def test_fork_settings_are_supported_ignored_or_rejected() -> None:
    param = caffe_pb2.BatchNormParameter(scale_bias=True, relu=True, engine=caffe_pb2.BatchNormParameter.CUDNN)
    param.scale_filler.diag_val.append(2)  # every filler obeys these two, or has no use for them
    param.scale_filler.alpha = 3
    assert list(unknown_settings(param, ("scale_bias", "scale_filler"))) == ["relu (of intel)"]
    assert [setting for setting, _ in ignored_fields(param)] == ["engine (of happynear, intel, nvidia)"]
    assert list(ignored_fields(caffe_pb2.BatchNormParameter(engine=caffe_pb2.BatchNormParameter.DEFAULT))) == []
