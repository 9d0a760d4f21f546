// The values of a program under construction: location, layout and last reader of each, and passes over one value.
//
// oneDNN chooses the layout of a convolution's arrays, with two exceptions that use blocks of channels. The first is
// values that Concat joins along the channels: with one image their blocks are contiguous, so they are computed
// directly in the result. Otherwise oneDNN would copy them by its reference code, which is 200 times as slow. The
// second is depthwise convolutions, which are fastest in this layout: it makes MobileNet 5 % faster.

#ifndef CAFFEJAX_KERNELS_PLAN_VALUES_H_
#define CAFFEJAX_KERNELS_PLAN_VALUES_H_

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "post_ops.h"

namespace caffejax {

using Statements = std::vector<Statement>;

class Values {
 protected:
  explicit Values(const Program& program)
      : program_(program), values_(program.Values()), last_use_(program.Values(), -1), is_output_(program.Values()) {
    for (size_t i = 0; i < program.arguments.size(); ++i) {
      Bytes(program.arguments[i]);
      values_[i] = {steps_.Add(BufferKind::kArgument, i), Plain(program.arguments[i])};
    }
    for (const Dims& weight : program.weights) Bytes(weight);
    for (size_t i = 0; i < program.operations.size(); ++i) {
      const Operation& o = program.operations[i];
      Bytes(o.Out());
      for (int64_t value : o.self.IntegerList("in")) MarkUse(value, i);
      for (const Statement& s : o.after) {
        if (s.Has("value")) MarkUse(s.Integer("value"), i);
      }
      FindConcatSlots(i);
      uses_channel_blocks_ = uses_channel_blocks_ || IsBlockedDepthwise(o);
    }
    for (int64_t result : program.results) is_output_[result] = true;
  }

  int ResultNumber(size_t operation) const { return static_cast<int>(program_.arguments.size() + operation); }

  void MarkUse(int64_t value, size_t operation) {
    Require(0 <= value && value < ResultNumber(operation), "value ", value, " is used before it is computed");
    last_use_[value] = static_cast<int>(operation);
  }

  // The inputs of a concatenation of one image along the channels may be computed directly in its result, if each
  // begins at a full block of channels.
  void FindConcatSlots(size_t operation) {
    const Statement& s = program_.operations[operation].self;
    Dims out = program_.operations[operation].Out();
    if (s.name != "concat" || s.Integer("axis") != 1 || !IsSpatial(out) || s.ResultType() != Type::f32) return;
    uses_channel_blocks_ = true;
    if (out[0] != 1) return;
    std::map<int64_t, std::pair<size_t, int64_t>> slots;
    int64_t channel = 0;
    for (int64_t value : s.IntegerList("in")) {
      int64_t channels = program_.Shape(value).at(1);
      if (channel % kBlock) return;
      if (channels % kBlock == 0 && value >= ResultNumber(0)) slots.emplace(value, std::pair{operation, channel});
      channel += channels;
    }
    concat_slots_.merge(slots);
  }

  // Returns whether an operation is a depthwise convolution of full blocks of channels.
  static bool IsBlockedDepthwise(const Operation& o) {
    Dims out = o.Out();
    bool floats = o.self.name == "convolution" && !o.self.Has("scales") && o.self.ResultType() == Type::f32;
    bool is_depthwise = floats && IsSpatial(out) && o.self.Integer("groups") == out[1];
    return is_depthwise && out[1] > 1 && out[1] % kBlock == 0;
  }

  std::optional<Tensor> ConcatSlot(int64_t value) {
    auto part = concat_slots_.find(value);
    if (part == concat_slots_.end()) return std::nullopt;
    auto [operation, channel] = part->second;
    Tensor& joint = values_[ResultNumber(operation)];
    if (joint.buffer < 0) joint = AllocateJoint(program_.operations[operation].Out());
    Dims dims = program_.Shape(value), before = dims;
    before[1] = channel;
    return Tensor{joint.buffer, ByBlocks(dims), channel ? static_cast<size_t>(Bytes(before)) : 0};
  }

  Tensor AllocateJoint(const Dims& out) {
    Tensor joint = steps_.Allocate(ByBlocks(out));
    steps_.buffers[joint.buffer].shared = true;
    return joint;
  }

  // Returns whether this operation is the last reader of a value and reads it only once. It may then overwrite the
  // value.
  bool CanOverwrite(int64_t value, size_t operation) const {
    const Buffer& b = steps_.buffers[values_[value].buffer];
    bool last = last_use_[value] <= static_cast<int>(operation) && CountReads(operation, value) == 1;
    return last && !is_output_[value] && !b.shared && b.kind == BufferKind::kArena;
  }

  // Counts how often an operation and the statements on its result read a value.
  int64_t CountReads(size_t operation, int64_t value) const {
    Dims in = Self(operation).IntegerList("in");
    int64_t count = std::count(in.begin(), in.end(), value);
    for (const Statement& s : program_.operations[operation].after)
      count += s.Has("value") && s.Integer("value") == value;
    return count;
  }

  void WriteOutputs() {
    for (size_t i = 0; i < program_.results.size(); ++i) {
      const Tensor& value = values_[program_.results[i]];
      Buffer& buffer = steps_.buffers[value.buffer];
      auto plain = Plain(value.layout.get_dims());
      bool rows = plain.get_dims().size() == 2;  // rows need not begin at a multiple of 64 bytes
      if (rows && buffer.kind == BufferKind::kArena && !buffer.shared &&
          value.layout == plain) {  // computed in the result
        buffer.kind = BufferKind::kResult;
        buffer.number = static_cast<int64_t>(i);
      } else {
        steps_.Copy(value, {steps_.Add(BufferKind::kResult, i), plain});
      }
    }
  }

  const Statement& Self(size_t i) const { return program_.operations[i].self; }
  int64_t In(size_t i, size_t which = 0) const { return Self(i).IntegerList("in").at(which); }
  const Tensor& X(size_t i) const { return values_[In(i)]; }

  // Returns the operand of a statement for results of this layout. For a post-op, a weight is in Caffe's order.
  Tensor Operand(const Statement& s, const memory::desc& like, bool is_post_op = true) {
    size_t rank = like.get_dims().size();
    if (s.Has("weight")) {
      const Dims& weight = program_.Weight(s.Integer("weight"));
      Require(weight.size() == 1, s.name, ": the weight must have one axis");
      auto plain = AlongChannels(weight[0], rank);
      bool in_blocks = !is_post_op && IsSpatial(plain.get_dims()) && like == ByBlocks(like.get_dims());
      return steps_.Weight(s.Integer("weight"), plain, in_blocks ? ByBlocks(plain.get_dims()) : plain);
    }
    const Tensor& value = values_[s.Integer("value")];
    auto layout = LayoutOf(value.layout, like);
    return IsQuantized(value.layout) ? ToFloat(value, layout, s) : steps_.WithLayout(value, layout);
  }

  // Returns the layout in which a value is combined with a result: the result's layout if the shapes are equal.
  // Integers are converted to float32, because oneDNN ignores their steps when it combines them.
  static memory::desc LayoutOf(const memory::desc& value, const memory::desc& like) {
    bool same = value.get_dims() == like.get_dims() && like.get_format_kind() != memory::format_kind::any;
    const memory::desc& layout = same ? like : value;
    return IsQuantized(value) || IsQuantized(like) ? WithType(layout, Type::f32) : layout;
  }

  Tensor QuantizationScale(const Statement& s, const char* field) {
    return steps_.Weight(s.Integer(field), Plain({1}));
  }

  // Returns a value as float32. The statement has its step.
  Tensor ToFloat(const Tensor& value, const memory::desc& layout, const Statement& s) {
    Tensor step = QuantizationScale(s, "scale"), converted = steps_.Allocate(layout);
    steps_.Copy(value, converted, &step);
    return converted;
  }

  // Converts float32 to the type and step of an operation's result.
  Tensor ToResultType(const Tensor& value, const Statement& s) {
    Type type = s.ResultType();
    if (!IsQuantized(type)) return steps_.WithLayout(value, WithType(value.layout, type));
    Tensor step = QuantizationScale(s, "scale"), converted = steps_.Allocate(WithType(value.layout, type));
    steps_.Copy(value, converted, nullptr, &step);
    return converted;
  }

  PostOps MakePostOps(const Statements& all, const memory::desc& like, int64_t in_place = -1) {
    PostOps after;
    for (const Statement& s : all) {
      if (Pointwise(s)) {
        after.Add(s);
      } else if (s.Has("value") && s.Integer("value") == in_place) {
        after.AddInPlace(s, values_[in_place]);
      } else {
        after.Add(s, Operand(s, like));
      }
    }
    return after;
  }

  // Returns whether the spatial axes have one cell. In this case oneDNN's binary primitive computes wrong results of
  // per-channel post-ops for all images but the first.
  static bool IsPoint(const memory::desc& layout) {
    Dims dims = layout.get_dims();
    return dims.size() > 2 && std::all_of(dims.begin() + 2, dims.end(), [](int64_t n) { return n == 1; });
  }

  // Returns whether a statement combines an array in blocks of channels with a value that has one channel, as SSD's
  // Normalize does. oneDNN does this by its reference code, which took 62 of the 320 ms of SSD300 on two cores.
  bool BroadcastsOverBlocks(const Statement& s, const memory::desc& layout) const {
    if (!s.Has("value") || !layout.get_inner_nblks() || !IsSpatial(layout.get_dims())) return false;
    Dims dims = values_[s.Integer("value")].layout.get_dims();
    return dims.size() > 1 && dims[1] == 1 && layout.get_dims()[1] > 1;
  }

  // Applies statements to a value in separate passes, as many statements in each as oneDNN can fuse.
  Tensor ApplyStatements(Tensor x, const Statements& all, bool can_overwrite) {
    for (size_t i = 0; i < all.size();) {
      if (BroadcastsOverBlocks(all[i], x.layout)) {
        x = steps_.WithLayout(x, ByPixels(x.layout.get_dims(), x.layout.get_data_type()));
        can_overwrite = true;
      }
      Tensor y = can_overwrite ? x : steps_.Allocate(x.layout);
      if (auto pointwise = Pointwise(all[i])) {
        dnnl::eltwise_forward::primitive_desc pd(Engine(), dnnl::prop_kind::forward_inference, *pointwise, x.layout,
                                                 x.layout, all[i].Number("a"), all[i].Number("b"), Attributes());
        steps_.Emit(pd, {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y}});
        ++i;
      } else if (all[i].name == "prelu") {
        Tensor slopes = Operand(all[i], x.layout);
        dnnl::prelu_forward::primitive_desc pd(Engine(), dnnl::prop_kind::forward_inference, x.layout, slopes.layout,
                                               x.layout, Attributes());
        steps_.Emit(pd, {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, slopes}, {DNNL_ARG_DST, y}});
        ++i;
      } else {
        Tensor operand = Operand(all[i], x.layout, false);  // oneDNN's binary primitive needs both in blocks, or none
        auto next = std::find_if(all.begin() + i + 1, all.end(),
                                 [&](auto& s) { return s.name == "prelu" || (s.Has("weight") && IsPoint(x.layout)); });
        PostOps after = MakePostOps(Statements(all.begin() + i + 1, next), x.layout);
        dnnl::binary::primitive_desc pd(Engine(), Pairwise(all[i]), x.layout, operand.layout, x.layout,
                                        after.Attributes());
        Operands operands = after.operands;
        operands.insert(operands.end(), {{DNNL_ARG_SRC_0, x}, {DNNL_ARG_SRC_1, operand}, {DNNL_ARG_DST, y}});
        steps_.Emit(pd, operands);
        i = next - all.begin();
      }
      x = y;
      can_overwrite = true;
    }
    return x;
  }

  const Program& program_;
  Steps steps_;
  std::vector<Tensor> values_;
  std::vector<int> last_use_;
  std::vector<bool> is_output_;
  std::map<int64_t, std::pair<size_t, int64_t>> concat_slots_;  // by value: the concatenation, and the first channel
  bool uses_channel_blocks_ = false;
};

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_PLAN_VALUES_H_
