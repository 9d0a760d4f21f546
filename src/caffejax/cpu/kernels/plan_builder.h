// Builds the execution plan of a program: chooses the oneDNN primitive for each operation.

#ifndef CAFFEJAX_KERNELS_PLAN_BUILDER_H_
#define CAFFEJAX_KERNELS_PLAN_BUILDER_H_

#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "conv_dense.h"

namespace caffejax {

class Build : public Weighted {
 public:
  static Steps Of(const Program& program) {
    Build build(program);
    for (size_t i = 0; i < program.operations.size(); ++i) build.Compute(i);
    build.WriteOutputs();
    build.steps_.Finish();
    return std::move(build.steps_);
  }

 private:
  using Weighted::Weighted;

  void Compute(size_t i) {
    using Member = void (Build::*)(size_t);
    static const auto& methods = *new std::map<std::string, Member>{{"apply", &Build::Apply},
                                                                    {"concat", &Build::Concatenate},
                                                                    {"convolution", &Build::Convolve},
                                                                    {"convert", &Build::Convert},
                                                                    {"dense", &Build::Multiply},
                                                                    {"deconvolution", &Build::Deconvolve},
                                                                    {"lrn", &Build::NormalizeResponse},
                                                                    {"max", &Build::Pool},
                                                                    {"mean", &Build::Pool},
                                                                    {"padded_mean", &Build::Pool},
                                                                    {"pad", &Build::Pad},
                                                                    {"permute", &Build::Permute},
                                                                    {"reshape", &Build::Reshape},
                                                                    {"shuffle", &Build::Shuffle},
                                                                    {"slice", &Build::Slice},
                                                                    {"softmax", &Build::Softmax}};
    auto method = methods.find(Self(i).name);
    Require(method != methods.end(), "no operation ", Self(i).name);
    ScopedSingleThread one(IsSmall(i));
    (this->*method->second)(i);
    const Tensor& result = values_[ResultNumber(i)];
    Require(result.layout.get_dims() == program_.operations[i].Out(), Self(i).name,
            " has a result of another shape than declared");
  }

  // Returns whether an operation is faster in one thread, because it is too small to wake others.
  bool IsSmall(size_t i) const {
    const Statement& s = Self(i);
    int64_t out = Bytes(program_.operations[i].Out()), moved = out, products = 0;
    for (int64_t value : s.IntegerList("in")) moved += Bytes(program_.Shape(value));
    if (s.Has("weight")) {
      const Dims& weight = program_.Weight(s.Integer("weight"));
      moved += Bytes(weight);
      products = out / sizeof(float) * (Bytes(weight) / sizeof(float) / weight.at(0));
    }
    return moved <= kSmallBytes && products <= kSmallProducts;
  }

  void Apply(size_t i) {
    values_[ResultNumber(i)] = ApplyStatements(X(i), program_.operations[i].after, CanOverwrite(In(i), i));
  }

  // Converts a value to a different type, or integers to a different step.
  void Convert(size_t i) {
    const Statement& s = Self(i);
    const Tensor& x = X(i);
    Type type = s.ResultType();
    auto layout = type == Type::f32 ? WithType(x.layout, type) : Narrow(x.layout.get_dims(), type);
    std::optional<Tensor> from, to;
    if (IsQuantized(x.layout)) from = QuantizationScale(s, "scales");
    if (IsQuantized(type)) to = QuantizationScale(s, "scale");
    values_[ResultNumber(i)] = steps_.Allocate(layout);
    steps_.Copy(x, values_[ResultNumber(i)], from ? &*from : nullptr, to ? &*to : nullptr);
  }

  void Pool(size_t i) {
    using a = dnnl::algorithm;
    const Statement& s = Self(i);
    Dims out = program_.operations[i].Out();
    size_t axes = out.size() - 2;
    Require(IsSpatial(out) && X(i).layout.get_dims().size() == out.size(), s.name, ": not 1 to 3 spatial axes");
    auto kind = s.name == "max"    ? a::pooling_max
                : s.name == "mean" ? a::pooling_avg_exclude_padding
                                   : a::pooling_avg_include_padding;
    auto describe = [&](const memory::desc& x, const memory::desc& y) {
      return dnnl::pooling_forward::primitive_desc(Engine(), dnnl::prop_kind::forward_inference, kind, x, y,
                                                   s.IntegerList("stride", axes, 1), s.IntegerList("kernel", axes, 1),
                                                   Dims(axes, 0), s.IntegerList("low", axes, 0),
                                                   s.IntegerList("high", axes, 0), Attributes());
    };
    Tensor x = X(i);
    auto at = ConcatSlot(ResultNumber(i));
    Type type = x.layout.get_data_type();
    if (at) x = steps_.WithLayout(x, ByBlocks(x.layout.get_dims()));
    auto pd = describe(x.layout, at ? at->layout : AnyOrder(out, type));
    if (!at && !IsTuned(pd)) {
      Dims dims = x.layout.get_dims();
      x = steps_.WithLayout(x, type == Type::f32 ? ByBlocks(dims) : Narrow(dims, type));
      pd = describe(x.layout, AnyOrder(out, type));
    }
    Tensor y = at ? *at : steps_.Allocate(pd.dst_desc());
    steps_.Emit(pd, {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y}});
    values_[ResultNumber(i)] = ApplyStatements(y, program_.operations[i].after, true);
  }

  void NormalizeResponse(size_t i) {
    const Statement& s = Self(i);
    auto kind = s.Integer("within") ? dnnl::algorithm::lrn_within_channel : dnnl::algorithm::lrn_across_channels;
    auto describe = [&](const memory::desc& x) {
      return dnnl::lrn_forward::primitive_desc(Engine(), dnnl::prop_kind::forward_inference, kind, x, x,
                                               s.Integer("size"), s.Number("alpha"), s.Number("beta"), s.Number("k"),
                                               Attributes());
    };
    Tensor x = X(i);
    auto pd = describe(x.layout);
    if (!IsTuned(pd)) {
      auto layout = ByBlocks(x.layout.get_dims(), x.layout.get_data_type());
      auto blocks = describe(layout);
      if (IsTuned(blocks)) {
        x = steps_.WithLayout(x, layout);
        pd = blocks;
      }
    }
    Emit(i, pd, x);
  }

  void Softmax(size_t i) {
    Tensor x = X(i);
    dnnl::softmax_forward::primitive_desc pd(Engine(), dnnl::prop_kind::forward_inference,
                                             dnnl::algorithm::softmax_accurate, x.layout, x.layout,
                                             static_cast<int>(Self(i).Integer("axis")), Attributes());
    Emit(i, pd, x);
  }

  void Shuffle(size_t i) {
    Tensor x = X(i);
    dnnl::shuffle_forward::primitive_desc pd(Engine(), dnnl::prop_kind::forward_inference, x.layout, x.layout, 1,
                                             static_cast<int>(Self(i).Integer("size")), Attributes());
    Emit(i, pd, x);
  }

  // Adds a primitive whose result has the layout of its source.
  template <typename Description>
  void Emit(size_t i, const Description& pd, const Tensor& x) {
    Tensor y = steps_.Allocate(pd.dst_desc());
    steps_.Emit(pd, {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y}});
    values_[ResultNumber(i)] = ApplyStatements(y, program_.operations[i].after, true);
  }

  void Concatenate(size_t i) {
    const Statement& s = Self(i);
    Dims out = program_.operations[i].Out(), from(out.size(), 0);
    size_t axis = s.IntegerList("axis", 1, 0)[0];
    Require(axis < out.size(), "concat: no axis ", axis);
    Tensor& joint = values_[ResultNumber(i)];
    if (joint.buffer < 0) joint = steps_.Allocate(Order(s, out, axis));
    for (int64_t value : s.IntegerList("in")) {
      const Tensor& part = values_[value];
      Dims dims = part.layout.get_dims();
      Require(dims.size() == out.size() && from[axis] + dims[axis] <= out[axis], "concat: parts do not fit");
      auto slot = concat_slots_.find(value);
      // a slice of another part is in the same buffer too, but not at its own place
      bool is_in_place = slot != concat_slots_.end() && slot->second == std::pair{i, from[1]} &&
                         part.buffer == joint.buffer && part.offset == ConcatSlot(value)->offset;
      if (!is_in_place) {
        steps_.Copy(part, {joint.buffer, joint.layout.submemory_desc(dims, from), joint.offset});
      }
      from[axis] += dims[axis];
    }
    Require(from[axis] == out[axis], "concat: parts are missing");
  }

  // The result is in blocks of channels if all parts except the last have full blocks. Otherwise its channels are last.
  memory::desc Order(const Statement& s, const Dims& out, size_t axis) const {
    if (s.ResultType() != Type::f32) return Narrow(out, s.ResultType());
    if (axis != 1 || !IsSpatial(out)) return Plain(out);
    int64_t channel = 0;
    for (int64_t value : s.IntegerList("in")) {
      if (channel % kBlock) return ByPixels(out);
      channel += program_.Shape(value).at(1);
    }
    return channel % kBlock ? ByPixels(out) : ByBlocks(out);
  }

  void Reshape(size_t i) {
    Type type = X(i).layout.get_data_type();
    Tensor x = steps_.WithLayout(X(i), Plain(X(i).layout.get_dims(), type));
    Dims out = program_.operations[i].Out();
    Require(Bytes(out) == Bytes(x.layout.get_dims()), "reshape: another number of cells");
    steps_.buffers[x.buffer].shared = true;
    values_[ResultNumber(i)] = {x.buffer, Plain(out, type), x.offset};
  }

  // Adds cells of zeros before and after the cells of each spatial axis.
  void Pad(size_t i) {
    const Statement& s = Self(i);
    Dims in = X(i).layout.get_dims(), out = program_.operations[i].Out(), from(in.size(), 0);
    Require(IsSpatial(in) && X(i).layout.get_data_type() == Type::f32, "pad: not 1 to 3 spatial axes of float32");
    Dims low = s.IntegerList("low", in.size() - 2, 0), high = s.IntegerList("high", in.size() - 2, 0), padded = in;
    for (size_t axis = 0; axis < low.size(); ++axis) {
      from[axis + 2] = low[axis];
      padded[axis + 2] += low[axis] + high[axis];
    }
    Require(padded == out, "pad: another shape than the input's with its padding");
    Tensor result = steps_.Allocate(Plain(out));
    size_t bytes = result.layout.get_size();
    auto clear = [bytes](auto*, auto*, auto*, auto* y) { std::memset(y, 0, bytes); };
    steps_.Emit(std::make_unique<OwnKernel>(clear), {{DNNL_ARG_DST, result}}, memory::desc(), "zeros");
    Tensor x = steps_.WithLayout(X(i), Plain(in));
    steps_.Copy(x, {result.buffer, result.layout.submemory_desc(in, from), result.offset});
    values_[ResultNumber(i)] = ApplyStatements(result, program_.operations[i].after, true);
  }

  // Permutes axes: axis `order[j]` becomes axis j. The values are moved in memory, because oneDNN computes wrong
  // results for some functions of a view with permuted axes.
  void Permute(size_t i) {
    const Tensor& x = X(i);
    Dims order = Self(i).IntegerList("order", x.layout.get_dims().size(), 0);
    std::vector<int> to(order.size(), -1);
    for (size_t j = 0; j < order.size(); ++j) to.at(order[j]) = static_cast<int>(j);
    for (int axis : to) Require(axis >= 0, "permute: an axis occurs twice");
    values_[ResultNumber(i)] = steps_.Allocate(Plain(program_.operations[i].Out()));
    steps_.Copy({x.buffer, x.layout.permute_axes(to), x.offset}, values_[ResultNumber(i)]);
  }

  // For one image, full blocks of channels are contiguous and need no copy. Otherwise the plain layout is sliced.
  void Slice(size_t i) {
    const Statement& s = Self(i);
    Tensor x = X(i);
    Dims in = x.layout.get_dims(), out = program_.operations[i].Out(), from = s.IntegerList("from", in.size(), 0);
    Require(in.size() == out.size(), "slice: another number of axes");
    bool channels_only = true;
    for (size_t axis = 0; axis < out.size(); ++axis) {
      Require(from[axis] + out[axis] <= in[axis], "slice: beyond the end");
      channels_only = channels_only && (axis == 1 || out[axis] == in[axis]);
    }
    bool contiguous = channels_only && IsSpatial(in) && in[0] == 1 && from[1] % kBlock == 0 && out[1] % kBlock == 0;
    if (contiguous && x.layout == ByBlocks(in)) {
      Dims before = in;
      before[1] = from[1];
      steps_.buffers[x.buffer].shared = true;
      values_[ResultNumber(i)] = {x.buffer, ByBlocks(out), x.offset + (from[1] ? Bytes(before) : 0)};
      return;
    }
    x = steps_.WithLayout(x, Plain(in));
    // copied, because a result cannot have the description of a part of an array: its size omits the offset
    values_[ResultNumber(i)] = steps_.WithLayout({x.buffer, x.layout.submemory_desc(out, from), x.offset}, Plain(out));
    if (values_[ResultNumber(i)].buffer == x.buffer) steps_.buffers[x.buffer].shared = true;
  }
};

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_PLAN_BUILDER_H_
