// The values of a program under construction: location and layout of each, its last reader, and passes over one value.
//
// oneDNN chooses the layout of a convolution's arrays, with two exceptions that use blocks of channels. Values that Concat
// joins along the channels: with one image their blocks are contiguous, so they are computed in place, where oneDNN would
// copy with reference code, 200 times as slow. Depthwise convolutions, which are fastest so: all of MobileNet by 5 %.

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
      : program_(program), values_(program.Values()), last_use_(program.Values(), -1), wanted_(program.Values()) {
    for (size_t i = 0; i < program.arguments.size(); ++i) {
      Bytes(program.arguments[i]);
      values_[i] = {made_.Add(Where::kArgument, i), Plain(program.arguments[i])};
    }
    for (const Dims& weight : program.weights) Bytes(weight);
    for (size_t i = 0; i < program.operations.size(); ++i) {
      const Operation& o = program.operations[i];
      Bytes(o.Out());
      for (int64_t value : o.self.Whole("in")) MarkUse(value, i);
      for (const Statement& s : o.after) {
        if (s.Has("value")) MarkUse(s.One("value"), i);
      }
      FindParts(i);
      by_blocks_ = by_blocks_ || IsByChannel(o);
    }
    for (int64_t result : program.results) wanted_[result] = true;
  }

  int Own(size_t operation) const { return static_cast<int>(program_.arguments.size() + operation); }

  void MarkUse(int64_t value, size_t operation) {
    Require(0 <= value && value < Own(operation), "value ", value, " is used before it is there");
    last_use_[value] = static_cast<int>(operation);
  }

  // Sources of a concatenation along the channels may be computed directly in its result.
  void FindParts(size_t operation) {
    const Statement& s = program_.operations[operation].self;
    Dims out = program_.operations[operation].Out();
    if (s.name != "concat" || s.One("axis") != 1 || !IsSpatial(out) || s.ResultType() != Type::f32) return;
    by_blocks_ = true;
    int64_t channel = 0;
    for (int64_t value : s.Whole("in")) {
      int64_t channels = program_.Shape(value).at(1);
      bool whole = channel % kBlock == 0 && channels % kBlock == 0 && out[0] == 1;
      if (whole && value >= Own(0)) parts_.emplace(value, std::pair{operation, channel});
      channel += channels;
    }
  }

  // Returns whether an operation is a depthwise convolution of whole blocks of channels.
  static bool IsByChannel(const Operation& o) {
    Dims out = o.Out();
    bool floats = o.self.name == "convolution" && !o.self.Has("scales") && o.self.ResultType() == Type::f32;
    bool apart = floats && IsSpatial(out) && o.self.One("groups") == out[1];
    return apart && out[1] > 1 && out[1] % kBlock == 0;
  }

  std::optional<Place> InItsPlace(int64_t value) {
    auto part = parts_.find(value);
    if (part == parts_.end()) return std::nullopt;
    auto [operation, channel] = part->second;
    Place& joined = values_[Own(operation)];
    if (joined.buffer < 0) joined = Joined(program_.operations[operation].Out());
    Dims dims = program_.Shape(value), before = dims;
    before[1] = channel;
    return Place{joined.buffer, ByBlocks(dims), channel ? static_cast<size_t>(Bytes(before)) : 0};
  }

  Place Joined(const Dims& out) {
    Place joined = made_.Fresh(ByBlocks(out));
    made_.buffers[joined.buffer].shared = true;
    return joined;
  }

  // Returns whether this operation is the last reader of a value and reads it once, so that it may be overwritten.
  bool IsSpent(int64_t value, size_t operation) const {
    const Buffer& b = made_.buffers[values_[value].buffer];
    bool last = last_use_[value] <= static_cast<int>(operation) && Reads(operation, value) == 1;
    return last && !wanted_[value] && !b.shared && b.kind == Where::kArena;
  }

  // Counts how often an operation and the statements on its result read a value.
  int64_t Reads(size_t operation, int64_t value) const {
    Dims in = Self(operation).Whole("in");
    int64_t count = std::count(in.begin(), in.end(), value);
    for (const Statement& s : program_.operations[operation].after) count += s.Has("value") && s.One("value") == value;
    return count;
  }

  void GiveResults() {
    for (size_t i = 0; i < program_.results.size(); ++i) {
      const Place& value = values_[program_.results[i]];
      Buffer& own = made_.buffers[value.buffer];
      auto plain = Plain(value.lies.get_dims());
      bool rows = plain.get_dims().size() == 2;  // which need not begin at a multiple of 64 bytes
      if (rows && own.kind == Where::kArena && !own.shared && value.lies == plain) {  // computed where it is wanted
        own.kind = Where::kResult;
        own.number = static_cast<int64_t>(i);
      } else {
        made_.Copy(value, {made_.Add(Where::kResult, i), plain});
      }
    }
  }

  const Statement& Self(size_t i) const { return program_.operations[i].self; }
  int64_t In(size_t i, size_t which = 0) const { return Self(i).Whole("in").at(which); }
  const Place& X(size_t i) const { return values_[In(i)]; }

  // Returns the operand of a statement for results of this layout.
  Place Operand(const Statement& s, const memory::desc& like) {
    size_t rank = like.get_dims().size();
    if (s.Has("weight")) {
      const Dims& weight = program_.Weight(s.One("weight"));
      Require(weight.size() == 1, s.name, ": the weight has not one axis");
      return made_.Weight(s.One("weight"), AlongChannels(weight[0], rank));
    }
    const Place& value = values_[s.One("value")];
    auto lies = LayoutOf(value.lies, like);
    return IsQuantized(value.lies) ? Converted(value, lies, s) : made_.As(value, lies);
  }

  // Returns the layout in which a value is combined with a result: the result's, where all have the same shape. Integers
  // are converted to float32, because oneDNN combines them without regard to their steps.
  static memory::desc LayoutOf(const memory::desc& value, const memory::desc& like) {
    bool same = value.get_dims() == like.get_dims() && like.get_format_kind() != memory::format_kind::any;
    const memory::desc& lies = same ? like : value;
    return IsQuantized(value) || IsQuantized(like) ? WithType(lies, Type::f32) : lies;
  }

  Place Step(const Statement& s, const char* field) { return made_.Weight(s.One(field), Plain({1})); }

  // Returns a value, whose step a statement has, as float32.
  Place Converted(const Place& value, const memory::desc& lies, const Statement& s) {
    Place step = Step(s, "scale"), converted = made_.Fresh(lies);
    made_.Copy(value, converted, &step);
    return converted;
  }

  // Converts float32 to the type and step of an operation's result.
  Place AsResult(const Place& value, const Statement& s) {
    Type type = s.ResultType();
    if (!IsQuantized(type)) return made_.As(value, WithType(value.lies, type));
    Place step = Step(s, "scale"), converted = made_.Fresh(WithType(value.lies, type));
    made_.Copy(value, converted, nullptr, &step);
    return converted;
  }

  After AfterAll(const Statements& all, const memory::desc& like, int64_t in_place = -1) {
    After after;
    for (const Statement& s : all) {
      if (Pointwise(s)) {
        after.Add(s);
      } else if (s.Has("value") && s.One("value") == in_place) {
        after.AddInPlace(s, values_[in_place]);
      } else {
        after.Add(s, Operand(s, like));
      }
    }
    return after;
  }

  // Returns whether the spatial axes have one cell. oneDNN's binary primitive then computes post-ops by channel wrongly
  // for all images but the first.
  static bool IsPoint(const memory::desc& lies) {
    Dims dims = lies.get_dims();
    return dims.size() > 2 && std::all_of(dims.begin() + 2, dims.end(), [](int64_t n) { return n == 1; });
  }

  // Applies statements to a value in separate passes, as many statements in each as oneDNN can fuse.
  Place Passes(Place x, const Statements& all, bool spent) {
    for (size_t i = 0; i < all.size();) {
      Place y = spent ? x : made_.Fresh(x.lies);
      if (auto pointwise = Pointwise(all[i])) {
        dnnl::eltwise_forward::primitive_desc pd(Engine(), dnnl::prop_kind::forward_inference, *pointwise, x.lies,
                                                 x.lies, all[i].Number("a"), all[i].Number("b"), Attributes(false));
        made_.Emit(pd, {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y}});
        ++i;
      } else if (all[i].name == "prelu") {
        Place slopes = Operand(all[i], x.lies);
        dnnl::prelu_forward::primitive_desc pd(Engine(), dnnl::prop_kind::forward_inference, x.lies, slopes.lies,
                                               x.lies, Attributes(false));
        made_.Emit(pd, {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, slopes}, {DNNL_ARG_DST, y}});
        ++i;
      } else {
        Place operand = Operand(all[i], x.lies);
        auto next = std::find_if(all.begin() + i + 1, all.end(),
                                 [&](auto& s) { return s.name == "prelu" || (s.Has("weight") && IsPoint(x.lies)); });
        After after = AfterAll(Statements(all.begin() + i + 1, next), x.lies);
        dnnl::binary::primitive_desc pd(Engine(), Pairwise(all[i]), x.lies, operand.lies, x.lies, after.Attributes());
        Operands operands = after.operands;
        operands.insert(operands.end(), {{DNNL_ARG_SRC_0, x}, {DNNL_ARG_SRC_1, operand}, {DNNL_ARG_DST, y}});
        made_.Emit(pd, operands);
        i = next - all.begin();
      }
      x = y;
      spent = true;
    }
    return x;
  }

  const Program& program_;
  Steps made_;
  std::vector<Place> values_;
  std::vector<int> last_use_;
  std::vector<bool> wanted_;
  std::map<int64_t, std::pair<size_t, int64_t>> parts_;  // by value: the concatenation, and from which channel on
  bool by_blocks_ = false;
};

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_PLAN_VALUES_H_
