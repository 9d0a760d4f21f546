// Builds the execution plan of a program: chooses the oneDNN primitive for each operation.

#ifndef CAFFEJAX_KERNELS_PLAN_BUILDER_H_
#define CAFFEJAX_KERNELS_PLAN_BUILDER_H_

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
    build.GiveResults();
    build.made_.Finish();
    return std::move(build.made_);
  }

 private:
  using Weighted::Weighted;

  void Compute(size_t i) {
    using Member = void (Build::*)(size_t);
    static const auto& known = *new std::map<std::string, Member>{
        {"apply", &Build::Apply},     {"concat", &Build::Concatenate},         {"convolution", &Build::Convolve},
        {"convert", &Build::Convert},
        {"dense", &Build::Multiply},  {"deconvolution", &Build::Deconvolve},   {"lrn", &Build::NormalizeResponse},
        {"max", &Build::Pool},        {"mean", &Build::Pool},                  {"padded_mean", &Build::Pool},
        {"permute", &Build::Permute}, {"reshape", &Build::Reshape},            {"shuffle", &Build::Shuffle},
        {"slice", &Build::Slice},     {"softmax", &Build::Softmax}};
    auto found = known.find(Self(i).name);
    Require(found != known.end(), "no operation ", Self(i).name);
    OneThread one(IsSmall(i));
    (this->*found->second)(i);
    const Place& made = values_[Own(i)];
    Require(made.lies.get_dims() == program_.operations[i].Out(), Self(i).name, " gives another shape than it says");
  }

  // Returns whether an operation is faster in one thread: it is too small to wake others.
  bool IsSmall(size_t i) const {
    const Statement& s = Self(i);
    int64_t out = Bytes(program_.operations[i].Out()), moved = out, products = 0;
    for (int64_t value : s.Whole("in")) moved += Bytes(program_.Shape(value));
    if (s.Has("weight")) {
      const Dims& weight = program_.Weight(s.One("weight"));
      moved += Bytes(weight);
      products = out / sizeof(float) * (Bytes(weight) / sizeof(float) / weight.at(0));
    }
    return moved <= kSmallBytes && products <= kSmallProducts;
  }

  void Apply(size_t i) { values_[Own(i)] = Passes(X(i), program_.operations[i].after, IsSpent(In(i), i)); }

  // Converts to another type, or integers to another step.
  void Convert(size_t i) {
    const Statement& s = Self(i);
    const Place& x = X(i);
    Type type = s.ResultType();
    auto lies = type == Type::f32 ? WithType(x.lies, type) : Narrow(x.lies.get_dims(), type);
    std::optional<Place> from, to;
    if (IsQuantized(x.lies)) from = Step(s, "scales");
    if (IsQuantized(type)) to = Step(s, "scale");
    values_[Own(i)] = made_.Fresh(lies);
    made_.Copy(x, values_[Own(i)], from ? &*from : nullptr, to ? &*to : nullptr);
  }

  void Pool(size_t i) {
    using a = dnnl::algorithm;
    const Statement& s = Self(i);
    Dims out = program_.operations[i].Out();
    size_t axes = out.size() - 2;
    Require(IsSpatial(out) && X(i).lies.get_dims().size() == out.size(), s.name, ": not 1 to 3 spatial axes");
    auto kind = s.name == "max" ? a::pooling_max
                : s.name == "mean" ? a::pooling_avg_exclude_padding : a::pooling_avg_include_padding;
    auto describe = [&](const memory::desc& x, const memory::desc& y) {
      return dnnl::pooling_forward::primitive_desc(
          Engine(), dnnl::prop_kind::forward_inference, kind, x, y, s.Whole("stride", axes, 1),
          s.Whole("kernel", axes, 1), Dims(axes, 0), s.Whole("low", axes, 0), s.Whole("high", axes, 0),
          Attributes(false));
    };
    Place x = X(i);
    auto at = InItsPlace(Own(i));
    Type type = x.lies.get_data_type();
    if (at) x = made_.As(x, ByBlocks(x.lies.get_dims()));
    auto pd = describe(x.lies, at ? at->lies : AnyOrder(out, type));
    if (!at && !IsTuned(pd)) {
      Dims dims = x.lies.get_dims();
      x = made_.As(x, type == Type::f32 ? ByBlocks(dims) : Narrow(dims, type));
      pd = describe(x.lies, AnyOrder(out, type));
    }
    Place y = at ? *at : made_.Fresh(pd.dst_desc());
    made_.Emit(pd, {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y}});
    values_[Own(i)] = Passes(y, program_.operations[i].after, true);
  }

  void NormalizeResponse(size_t i) {
    const Statement& s = Self(i);
    auto kind = s.One("within") ? dnnl::algorithm::lrn_within_channel : dnnl::algorithm::lrn_across_channels;
    auto describe = [&](const memory::desc& x) {
      return dnnl::lrn_forward::primitive_desc(Engine(), dnnl::prop_kind::forward_inference, kind, x, x, s.One("size"),
                                               s.Number("alpha"), s.Number("beta"), s.Number("k"), Attributes(false));
    };
    Place x = X(i);
    auto pd = describe(x.lies);
    if (!IsTuned(pd)) {
      auto lies = ByBlocks(x.lies.get_dims(), x.lies.get_data_type());
      auto blocks = describe(lies);
      if (IsTuned(blocks)) {
        x = made_.As(x, lies);
        pd = blocks;
      }
    }
    Emit(i, pd, x);
  }

  void Softmax(size_t i) {
    Place x = X(i);
    dnnl::softmax_forward::primitive_desc pd(Engine(), dnnl::prop_kind::forward_inference,
                                             dnnl::algorithm::softmax_accurate, x.lies, x.lies,
                                             static_cast<int>(Self(i).One("axis")), Attributes(false));
    Emit(i, pd, x);
  }

  void Shuffle(size_t i) {
    Place x = X(i);
    dnnl::shuffle_forward::primitive_desc pd(Engine(), dnnl::prop_kind::forward_inference, x.lies, x.lies, 1,
                                             static_cast<int>(Self(i).One("size")), Attributes(false));
    Emit(i, pd, x);
  }

  // Adds a primitive whose result has the layout of its source.
  template <typename Description>
  void Emit(size_t i, const Description& pd, const Place& x) {
    Place y = made_.Fresh(pd.dst_desc());
    made_.Emit(pd, {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y}});
    values_[Own(i)] = Passes(y, program_.operations[i].after, true);
  }

  void Concatenate(size_t i) {
    const Statement& s = Self(i);
    Dims out = program_.operations[i].Out(), from(out.size(), 0);
    size_t axis = s.Whole("axis", 1, 0)[0];
    Require(axis < out.size(), "concat: no axis ", axis);
    Place& joined = values_[Own(i)];
    if (joined.buffer < 0) joined = made_.Fresh(Order(s, out, axis));
    for (int64_t value : s.Whole("in")) {
      const Place& part = values_[value];
      Dims dims = part.lies.get_dims();
      Require(dims.size() == out.size() && from[axis] + dims[axis] <= out[axis], "concat: parts do not fit");
      auto place = parts_.find(value);
      bool there = place != parts_.end() && part.buffer == joined.buffer && place->second == std::pair{i, from[1]};
      if (!there) {
        made_.Copy(part, {joined.buffer, joined.lies.submemory_desc(dims, from), joined.offset});
      }
      from[axis] += dims[axis];
    }
    Require(from[axis] == out[axis], "concat: parts are missing");
  }

  // In blocks of channels if all parts but the last have whole blocks, else with the channels last.
  memory::desc Order(const Statement& s, const Dims& out, size_t axis) const {
    if (s.ResultType() != Type::f32) return Narrow(out, s.ResultType());
    if (axis != 1 || !IsSpatial(out)) return Plain(out);
    int64_t channel = 0;
    for (int64_t value : s.Whole("in")) {
      if (channel % kBlock) return ByPixels(out);
      channel += program_.Shape(value).at(1);
    }
    return channel % kBlock ? ByPixels(out) : ByBlocks(out);
  }

  void Reshape(size_t i) {
    Type type = X(i).lies.get_data_type();
    Place x = made_.As(X(i), Plain(X(i).lies.get_dims(), type));
    Dims out = program_.operations[i].Out();
    Require(Bytes(out) == Bytes(x.lies.get_dims()), "reshape: another number of cells");
    made_.buffers[x.buffer].shared = true;
    values_[Own(i)] = {x.buffer, Plain(out, type), x.offset};
  }

  // Permutes axes: axis `order[j]` becomes axis j. The values are moved at once, because oneDNN computes some functions
  // wrongly on a view with permuted axes.
  void Permute(size_t i) {
    const Place& x = X(i);
    Dims order = Self(i).Whole("order", x.lies.get_dims().size(), 0);
    std::vector<int> to(order.size(), -1);
    for (size_t j = 0; j < order.size(); ++j) to.at(order[j]) = static_cast<int>(j);
    for (int axis : to) Require(axis >= 0, "permute: an axis comes twice");
    values_[Own(i)] = made_.Fresh(Plain(program_.operations[i].Out()));
    made_.Copy({x.buffer, x.lies.permute_axes(to), x.offset}, values_[Own(i)]);
  }

  // For one image, whole blocks of channels are contiguous and need no copy; otherwise the plain layout is sliced.
  void Slice(size_t i) {
    const Statement& s = Self(i);
    Place x = X(i);
    Dims in = x.lies.get_dims(), out = program_.operations[i].Out(), from = s.Whole("from", in.size(), 0);
    Require(in.size() == out.size(), "slice: another number of axes");
    bool channels_only = true;
    for (size_t axis = 0; axis < out.size(); ++axis) {
      Require(from[axis] + out[axis] <= in[axis], "slice: beyond the end");
      channels_only = channels_only && (axis == 1 || out[axis] == in[axis]);
    }
    bool whole = channels_only && IsSpatial(in) && in[0] == 1 && from[1] % kBlock == 0 && out[1] % kBlock == 0;
    if (whole && x.lies == ByBlocks(in)) {
      Dims before = in;
      before[1] = from[1];
      made_.buffers[x.buffer].shared = true;
      values_[Own(i)] = {x.buffer, ByBlocks(out), x.offset + (from[1] ? Bytes(before) : 0)};
      return;
    }
    x = made_.As(x, Plain(in));
    // copied, for a part of an array is no description that results may lie as: its size leaves out where it begins
    values_[Own(i)] = made_.As({x.buffer, x.lies.submemory_desc(out, from), x.offset}, Plain(out));
    if (values_[Own(i)].buffer == x.buffer) made_.buffers[x.buffer].shared = true;
  }
};

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_PLAN_BUILDER_H_
