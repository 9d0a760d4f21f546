// Convolution, deconvolution and dense operations. Several memory layouts are tried in order, and the first for which
// oneDNN has tuned code is used. A dense operation on one row reads its matrix in Caffe's order, which takes 1.55 ms
// instead of 1.95 ms for CaffeNet's matrix of 4096 x 4096.

#ifndef CAFFEJAX_KERNELS_CONV_DENSE_H_
#define CAFFEJAX_KERNELS_CONV_DENSE_H_

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "narrow_convolution.h"
#include "plan_values.h"
#include "row_product.h"
#include "winograd.h"

namespace caffejax {

// A kernel of this package in a frozen net. The bias may be null.
class OwnKernel : public Executable {
 public:
  using Function = std::function<void(const float* x, const float* weight, const float* bias, float* y)>;

  explicit OwnKernel(Function function) : function_(std::move(function)) {}

  void Run(const std::vector<dnnl_exec_arg_t>& operands) const override {
    auto at = [&](int number) { return FloatsOf(operands, number); };
    function_(at(DNNL_ARG_SRC), at(DNNL_ARG_WEIGHTS), at(DNNL_ARG_BIAS), at(DNNL_ARG_DST));
  }

 private:
  Function function_;
};

class Weighted : public Values {
 protected:
  static constexpr int64_t kFewRows = 3;

  using Values::Values;

  // The layouts of a convolution's arrays, in the order in which they are tried.
  struct Form {
    memory::desc x, y;
    std::optional<Tensor> at;       // the location that the result must have
    int64_t in_place = -1;         // the value that the result is added to
    bool fused = true;             // the epilogue is computed in the same pass, and a deconvolution's bias
  };

  std::vector<Form> Forms(size_t i) {
    const Tensor& x = X(i);
    Dims in = x.layout.get_dims(), out = program_.operations[i].Out();
    if (!IsFloat(i)) return NarrowForms(i);
    auto any_in = AnyOrder(in), any_out = AnyOrder(out);
    bool is_argument = steps_.buffers[x.buffer].kind == BufferKind::kArgument;
    memory::desc in_blocks = is_argument ? any_in : ByBlocks(in);
    std::vector<Form> forms;
    if (auto at = ConcatSlot(ResultNumber(i))) forms.push_back({in_blocks, at->layout, at});
    int64_t added = Added(i);
    if (added >= 0) {
      auto like = values_[added].layout;
      bool free = CanOverwrite(added, i) && values_[added].buffer != x.buffer;
      forms.push_back({uses_channel_blocks_ ? in_blocks : any_in, like, std::nullopt, free ? added : -1});
    } else if (uses_channel_blocks_) {
      forms.push_back({in_blocks, ByBlocks(out), std::nullopt});
    }
    forms.push_back({any_in, any_out, std::nullopt});
    forms.push_back({any_in, any_out, std::nullopt, -1, false});
    return forms;
  }

  bool IsFloat(size_t i) const { return Self(i).ResultType() == Type::f32 && X(i).layout.get_data_type() == Type::f32; }

  // The layouts of a convolution on numbers of less than 32 bits. Functions that oneDNN cannot fuse run in float32.
  std::vector<Form> NarrowForms(size_t i) {
    Dims out = program_.operations[i].Out();
    Type type = Self(i).ResultType();
    auto in = AnyOrder(X(i).layout.get_dims(), X(i).layout.get_data_type());
    std::vector<Form> forms;
    int64_t added = Added(i);
    if (added >= 0 && CanOverwrite(added, i) && values_[added].buffer != X(i).buffer) {
      auto layout = values_[added].layout;
      bool fits = layout.get_data_type() == type || (IsQuantized(layout) && IsQuantized(type));
      if (fits) forms.push_back({in, WithType(layout, type), std::nullopt, added});
    }
    forms.push_back({in, AnyOrder(out, type), std::nullopt});
    forms.push_back({in, AnyOrder(out), std::nullopt, -1, false});
    return forms;
  }

  // The attributes of an operation with a weight: its epilogue, and the operands that have steps.
  dnnl::primitive_attr AttributesOf(size_t i, const Form& form, const PostOps& after) const {
    auto attributes = after.Attributes();
    bool groups = Self(i).Has("groups") && Self(i).Integer("groups") > 1;
    if (IsQuantized(form.x)) attributes.set_scales_mask(DNNL_ARG_WEIGHTS, groups ? 3 : 1);
    if (IsQuantized(form.y)) attributes.set_scales_mask(DNNL_ARG_DST, 0);
    return attributes;
  }

  // The type of the weight of an operation on `x`.
  static Type WeightType(const memory::desc& x) { return IsQuantized(x) ? Type::s8 : x.get_data_type(); }

  // Returns the number of the value that is added to an operation's result and has its shape, or -1 if there is none.
  int64_t Added(size_t i) const {
    for (const Statement& s : program_.operations[i].after) {
      if (s.name == "plus" && s.Has("value") && program_.Shape(s.Integer("value")) == program_.operations[i].Out()) {
        return s.Integer("value");
      }
    }
    return -1;
  }

  // Adds an operation on x with a weight, in the first form for which oneDNN has tuned code, or else in the last form.
  // `describe(form, attributes)` returns the primitive's description.
  template <typename Describe>
  void EmitBestForm(size_t i, const Tensor& x, const std::vector<Form>& forms, const memory::desc& weight,
                    Describe describe) {
    const Statements& all = program_.operations[i].after;
    for (bool needs_direct : {true, false}) {
      for (const Form& form : forms) {
        bool last = !needs_direct && &form == &forms.back();
        try {
          PostOps probe = Probe(form.fused ? all : Statements{}, form);
          auto pd = describe(form, AttributesOf(i, form, probe));
          bool suits = IsTuned(pd) && (!needs_direct || Self(i).name == "dense" || IsDirect(pd));
          suits = suits && !(form.fused && AppliesEpilogueToPartialSums(pd));
          if (!last && !suits) continue;
          Emit(i, x, form, weight, describe);
          return;
        } catch (const dnnl::error& error) {
          if (last) throw;
        }
      }
    }
  }

  // Returns whether a convolution is computed without a matrix of all windows. With one, oneDNN computes PReLU in the
  // same pass, but 16 to 64 channels of ENet at 128x256 take 13 ms instead of 1.
  template <typename Description>
  static bool IsDirect(const Description& pd) {
    return std::string(pd.impl_info_str()).find("gemm:jit") == std::string::npos;
  }

  // Returns whether an implementation adds the bias, and applies the post-ops, to the sum over each block of inputs. So
  // does oneDNN's code for deconvolutions with a stride: its sums alone are right, on every processor and in every
  // type.
  template <typename Description>
  static bool AppliesEpilogueToPartialSums(const Description& pd) {
    return std::string(pd.impl_info_str()).find("brgconv_strided") != std::string::npos;
  }

  // The post-ops of an operation, without copies of values, to query oneDNN's implementations.
  PostOps Probe(const Statements& all, const Form& form) {
    PostOps after;
    for (const Statement& s : all) {
      if (Pointwise(s)) {
        after.Add(s);
      } else if (s.Has("value") && s.Integer("value") == form.in_place) {
        after.AddInPlace(s, values_[form.in_place]);
      } else if (s.Has("weight")) {
        after.Add(s, {0, AlongChannels(program_.Weight(s.Integer("weight")).at(0), form.y.get_dims().size())});
      } else {
        after.Add(s, {0, LayoutOf(values_[s.Integer("value")].layout, form.y)});
      }
    }
    return after;
  }

  template <typename Describe>
  void Emit(size_t i, const Tensor& source, const Form& form, const memory::desc& weight, Describe describe) {
    const Statement& s = Self(i);
    Statements all = program_.operations[i].after;
    PostOps after = MakePostOps(form.fused ? all : Statements{}, form.y, form.in_place);
    auto pd = describe(form, AttributesOf(i, form, after));
    Tensor x = steps_.WithLayout(source, pd.src_desc());
    Tensor y = TargetOf(form, pd.dst_desc());
    Require(y.layout == pd.dst_desc(), s.name, " has a result of another layout than requested");
    Operands operands = after.operands;
    operands.insert(operands.end(), {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y}});
    operands.emplace_back(DNNL_ARG_WEIGHTS, steps_.Weight(s.Integer("weight"), weight, pd.weights_desc()));
    if (pd.bias_desc().get_size()) {
      AddBias(i, operands);
    } else if (s.Has("bias")) {
      all.insert(all.begin(), Statement{"plus", {{"weight", s.Values("bias")}}});
    }
    if (IsQuantized(form.x)) {
      Tensor steps = steps_.Weight(s.Integer("scales"), Plain({program_.operations[i].Out().at(1)}));
      operands.emplace_back(DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, steps);
    }
    if (IsQuantized(form.y)) operands.emplace_back(DNNL_ARG_ATTR_SCALES | DNNL_ARG_DST, QuantizationScale(s, "scale"));
    steps_.Emit(pd, operands);
    values_[ResultNumber(i)] = form.fused ? y : ToResultType(ApplyStatements(y, all, true), s);
  }

  // Returns the location to which a result of this description is written.
  Tensor TargetOf(const Form& form, const memory::desc& layout) {
    if (form.in_place < 0) return form.at ? *form.at : steps_.Allocate(layout);
    const Tensor& added = values_[form.in_place];
    return {added.buffer, form.y, added.offset};
  }

  void AddBias(size_t i, Operands& operands) {
    if (!Self(i).Has("bias")) return;
    operands.emplace_back(DNNL_ARG_BIAS, steps_.Weight(Self(i).Integer("bias"), BiasOf(i)));
  }

  memory::desc BiasOf(size_t i) const {
    if (!Self(i).Has("bias")) return memory::desc();
    const Dims& bias = program_.Weight(Self(i).Integer("bias"));
    Require(bias == Dims{program_.operations[i].Out().at(1)}, Self(i).name,
            ": the bias must have a number for each output");
    return Plain(bias);
  }

  void Convolve(size_t i) {
    const Statement& s = Self(i);
    const Dims& caffe = program_.Weight(s.Integer("weight"));
    size_t axes = caffe.size() - 2;
    Require(IsSpatial(caffe) && X(i).layout.get_dims().size() == caffe.size(), "convolution: not 1 to 3 spatial axes");
    Dims weight = ByGroups(caffe, s.Integer("groups")), gaps = Gaps(s, axes);
    auto bias = BiasOf(i);
    auto forms = Forms(i);
    if (ConvolveNarrow(i) || Transform(i, forms.front())) return;
    EmitBestForm(i, X(i), forms, Plain(weight), [&](const Form& form, const dnnl::primitive_attr& attributes) {
      return dnnl::convolution_forward::primitive_desc(
          Engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct, form.x,
          AnyOrder(weight, WeightType(form.x)), bias, form.y, s.IntegerList("stride", axes, 1), gaps,
          s.IntegerList("low", axes, 0), s.IntegerList("high", axes, 0), attributes);
    });
  }

  // Adds a convolution with few channels by narrow_convolution.h. Returns false if this code does not suit the
  // convolution.
  bool ConvolveNarrow(size_t i) {
    const Statement& s = Self(i);
    const Dims &weight = program_.Weight(s.Integer("weight")), out = program_.operations[i].Out(), one{1, 1};
    bool is_plain = weight.size() == 4 && s.Integer("groups") == 1 && s.IntegerList("dilation") == one && IsFloat(i);
    if (!is_plain || !HasAtMostRelu(i) || uses_channel_blocks_) return false;
    Dims in = X(i).layout.get_dims(), stride = s.IntegerList("stride", 2, 1);
    Dims low = s.IntegerList("low", 2, 0), high = s.IntegerList("high", 2, 0);
    if (in.size() != 4 || out.size() != 4 || weight[1] != in[1] || weight[0] != out[1] || in[0] != out[0]) return false;
    for (size_t axis : {0, 1}) {
      int64_t starts = in[axis + 2] + low[axis] + high[axis] - weight[axis + 2];
      if (starts < 0 || starts / stride[axis] + 1 != out[axis + 2]) return false;
    }
    PlaneShape shape{
        in[0],           in[2], in[3], in[1], out[2], out[3], out[1], {weight[2], weight[3]}, {stride[0], stride[1]},
        {low[0], low[1]}};
    if (!NarrowConvolution::IsWorth(shape)) return false;
    NarrowConvolution narrow(shape);
    auto transform = [narrow](const float* from, float* to) { narrow.Pack(from, to); };
    auto packed = steps_.Weight(s.Integer("weight"), Plain(weight), Plain({narrow.PackedFloats()}), transform);
    bool relu = !program_.operations[i].after.empty();
    auto run = [narrow, relu](auto* x, auto* weight, auto* bias, auto* y) { narrow.Run(x, weight, bias, relu, y); };
    EmitOwnKernel(i, run, "narrow", steps_.WithLayout(X(i), ByPixels(in)), packed, ByPixels(out));
    return true;
  }

  // Returns whether an operation is followed by nothing or a ReLU.
  bool HasAtMostRelu(size_t i) const {
    const Statements& after = program_.operations[i].after;
    return after.empty() || (after.size() == 1 && after[0].name == "relu" && after[0].Number("a") == 0);
  }

  void EmitOwnKernel(size_t i, OwnKernel::Function function, const char* name, const Tensor& x, const Tensor& weight,
                     const memory::desc& layout) {
    Operands operands{{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, weight}};
    AddBias(i, operands);
    Tensor result = steps_.Allocate(layout);
    operands.emplace_back(DNNL_ARG_DST, result);
    steps_.Emit(std::make_unique<OwnKernel>(std::move(function)), operands, memory::desc(), name);
    values_[ResultNumber(i)] = result;
  }

  // Adds a convolution by Winograd's algorithm. Returns false if the algorithm does not suit the convolution.
  bool Transform(size_t i, const Form& form) {
    const Statement& s = Self(i);
    Dims weight = program_.Weight(s.Integer("weight")), out = program_.operations[i].Out(), one{1, 1};
    int64_t groups = s.Integer("groups"), added = -1;
    if (!IsFloat(i) || weight.size() != 4 || weight[2] != weight[3] || out.size() != 4 || groups < 1) return false;
    if (s.IntegerList("stride") != one || weight[0] != out[1] || out[1] % groups) return false;
    Dims low = s.IntegerList("low", 2, 0), high = s.IntegerList("high", 2, 0);
    Dims dilation = s.IntegerList("dilation", 2, 1);
    if (dilation[0] != dilation[1] || dilation[0] > std::min(out[2], out[3])) return false;
    int64_t kernel = weight[2], grown = (kernel - 1) * dilation[0];
    Dims in{out[0], groups * weight[1], out[2] + grown - low[0] - high[0], out[3] + grown - low[1] - high[1]};
    if (X(i).layout.get_dims() != in) return false;
    Winograd::Shape shape{out[0], groups, weight[1], out[1] / groups, {}, {}, low[0], low[1]};
    for (const Statement& after : program_.operations[i].after) {
      if (after.name == "relu" && !shape.relu) {
        shape.relu = true, shape.slope = after.Number("a");
      } else if (added < 0 && !shape.relu && Added(i) >= 0 && after.name == "plus" &&
                 !IsQuantized(values_[Added(i)].layout)) {
        added = Added(i);
      } else {
        return false;
      }
    }
    using kind = memory::format_kind;
    auto from = form.x;
    if (from.get_format_kind() == kind::any) from = Image::Of(X(i).layout) ? X(i).layout : ByPixels(from.get_dims());
    bool as_from = form.y.get_format_kind() == kind::any;
    auto to = !as_from ? form.y : from == ByBlocks(from.get_dims()) ? ByBlocks(out) : ByPixels(out);
    auto x = Image::Of(from), y = Image::Of(to);
    if (!x || !y) return false;
    shape.x = *x, shape.y = *y, shape.dilation = dilation[0];
    auto tiling = Winograd::Fastest(shape, kernel, {});
    if (!tiling) return false;
    shape.tiling = *tiling;
    auto winograd = std::make_unique<Winograd>(shape);
    if (!winograd->IsTuned()) return false;
    Dims by_groups{groups, shape.outputs, shape.inputs, kernel, kernel};
    auto transform = [tiling = *tiling, groups, layout = winograd->Weight()](const float* from, float* to) {
      TransformWeights(tiling, from, groups, false, layout, to);
    };
    Operands operands{
        {DNNL_ARG_SRC, steps_.WithLayout(X(i), from)},
        {DNNL_ARG_WEIGHTS, steps_.Weight(s.Integer("weight"), Plain(by_groups), winograd->Weight(), transform)}};
    AddBias(i, operands);
    Tensor result = TargetOf(form, to);
    if (added >= 0) operands.emplace_back(DNNL_ARG_SRC_1, steps_.WithLayout(values_[added], to));
    operands.emplace_back(DNNL_ARG_DST, result);
    auto scratchpad = winograd->Scratchpad();
    steps_.Emit(std::move(winograd), operands, scratchpad, "winograd " + tiling->Name());
    values_[ResultNumber(i)] = result;
    return true;
  }

  void Deconvolve(size_t i) {
    const Statement& s = Self(i);
    const Dims& caffe = program_.Weight(s.Integer("weight"));
    size_t axes = caffe.size() - 2;
    Require(IsSpatial(caffe) && X(i).layout.get_dims().size() == caffe.size(),
            "deconvolution: not 1 to 3 spatial axes");
    auto weight = Swapped(caffe, s.Integer("groups"));
    auto bias = BiasOf(i);
    Dims gaps = Gaps(s, axes);
    // oneDNN's own choice: by blocks of channels, UNet's 128 to 64 channels at 240x240 take 100 ms, by pixels 40
    auto any_in = AnyOrder(X(i).layout.get_dims()), any_out = AnyOrder(program_.operations[i].Out());
    std::vector<Form> forms{{any_in, any_out, std::nullopt}, {any_in, any_out, std::nullopt, -1, false}};
    EmitBestForm(i, X(i), IsFloat(i) ? forms : NarrowForms(i), weight,
                 [&](const Form& form, const dnnl::primitive_attr& attributes) {
                   return dnnl::deconvolution_forward::primitive_desc(
                       Engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::deconvolution_direct, form.x,
                       AnyOrder(weight.get_dims(), WeightType(form.x)), form.fused ? bias : memory::desc(), form.y,
                       s.IntegerList("stride", axes, 1), gaps, s.IntegerList("low", axes, 0),
                       s.IntegerList("high", axes, 0), attributes);
                 });
  }

  // Multiplies rows of any shape by a matrix (outputs, inputs). For few rows, most time is spent on reading the matrix
  // once, and Caffe's order is as fast as any other, so these batch sizes share one packed weight. More rows need
  // oneDNN's order.
  void Multiply(size_t i) {
    const Statement& s = Self(i);
    Tensor x = X(i);
    Dims rows = x.layout.get_dims(), caffe = program_.Weight(s.Integer("weight")), out = program_.operations[i].Out();
    Require(caffe.size() == 2 && Bytes(rows) / Bytes({rows[0]}) == caffe[1],
            "dense: the weight must have as many columns as the rows");
    Type type = x.layout.get_data_type();
    // oneDNN multiplies by its fast code, 3 times as fast for 32 rows of 512x7x7, only if there are two axes
    if (rows[0] > kFewRows) x = steps_.WithLayout(x, Plain(rows, type));
    if (x.layout == Plain(rows, type)) {
      rows = {rows[0], caffe[1]};
      x.layout = Plain(rows, type);
    }
    Dims weight = rows;
    weight[0] = caffe[0];
    auto any = AnyOrder(out, s.ResultType()), matrix = AnyOrder(weight, WeightType(x.layout));
    if (rows[0] <= kFewRows) {  // the rows' order: for others oneDNN first compiles its matrix library, 20 ms
      if (x.layout == Plain(rows)) matrix = Plain(weight);
      if (IsSpatial(rows) && x.layout == ByPixels(rows)) matrix = ByPixels(weight);
    }
    bool is_row = rows[0] == 1 && out == Dims{1, caffe[0]} && matrix.get_format_kind() != memory::format_kind::any;
    if (is_row && IsFloat(i) && __builtin_cpu_supports("avx512f")) return MultiplyRow(i, x, weight, matrix);
    std::vector<Form> forms{{x.layout, any, std::nullopt}, {AnyOrder(rows, type), any, std::nullopt}};
    forms.push_back({forms[1].x, AnyOrder(out), std::nullopt, -1, false});
    auto bias = BiasOf(i);
    EmitBestForm(i, x, forms, Plain(weight), [&](const Form& form, const dnnl::primitive_attr& attributes) {
      return dnnl::inner_product_forward::primitive_desc(Engine(), dnnl::prop_kind::forward_inference, form.x, matrix,
                                                         bias, form.y, attributes);
    });
  }

  // Multiplies one row by a matrix of this layout.
  void MultiplyRow(size_t i, const Tensor& x, const Dims& weight, const memory::desc& matrix) {
    const Statements& after = program_.operations[i].after;
    bool fused = HasAtMostRelu(i);
    RowProduct product{Bytes(weight) / Bytes({weight[0]}), weight[0], fused && !after.empty()};
    auto run = [product](auto* x, auto* weight, auto* bias, auto* y) { product.Run(x, weight, bias, y); };
    Tensor packed = steps_.Weight(Self(i).Integer("weight"), Plain(weight), matrix);
    EmitOwnKernel(i, run, "row product", x, packed, Plain(program_.operations[i].Out()));
    if (!fused) values_[ResultNumber(i)] = ApplyStatements(values_[ResultNumber(i)], after, true);
  }

  // oneDNN's dilation is the number of skipped cells: Caffe's minus 1.
  static Dims Gaps(const Statement& s, size_t axes) {
    Dims gaps = s.IntegerList("dilation", axes, 1);
    for (int64_t& gap : gaps) --gap;
    return gaps;
  }
};

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_CONV_DENSE_H_
