// oneDNN's primitives for convolutions and matrix products: created once for their shapes, then run on arrays.
//
// oneDNN's kernels need weights in an order that differs from Caffe's, so each call reorders them first.

#ifndef CAFFEJAX_KERNELS_ONEDNN_PRIMITIVES_H_
#define CAFFEJAX_KERNELS_ONEDNN_PRIMITIVES_H_

#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include "lru_cache.h"
#include "onednn_shapes.h"
#include "threads.h"

namespace caffejax {

using dnnl::memory;
using Dims = memory::dims;

inline dnnl::engine& Engine() {
  // never destroyed, because threads may use it until the process ends
  static auto& engine = *new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

inline dnnl::stream& Stream() {
  thread_local dnnl::stream stream(Engine());
  return stream;
}

using Type = memory::data_type;

inline memory::desc Strided(const Dims& dims, const Dims& strides, Type type = Type::f32) {
  return memory::desc(dims, type, strides);
}

// The layout of an array in C order, contiguous along the last axis.
inline memory::desc Plain(const Dims& dims, Type type = Type::f32) {
  Dims strides(dims.size());
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0; stride *= dims[i]) strides[i] = stride;
  return Strided(dims, strides, type);
}

// An array (batch, *space, channels) in memory, described in oneDNN's order of axes (batch, channels, *space).
inline memory::desc ChannelsLast(Numbers shape) {
  size_t n = shape.size();
  Dims dims(n), strides(n);
  int64_t stride = 1;
  for (size_t i = n; i-- > 0; stride *= shape[i]) {
    size_t axis = i == 0 ? 0 : i == n - 1 ? 1 : i + 1;
    dims[axis] = shape[i];
    strides[axis] = stride;
  }
  return Strided(dims, strides);
}

inline memory::desc Weight(Numbers shape, int64_t groups) {
  Dims dims(shape.begin(), shape.end());
  if (groups > 1) {
    dims[0] /= groups;
    dims.insert(dims.begin(), groups);
  }
  return Plain(dims);
}

inline memory::desc AnyOrder(const memory::desc& like) {
  return memory::desc(like.get_dims(), memory::data_type::f32, memory::format_tag::any);
}

inline dnnl::primitive_attr Attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

// An operand: oneDNN's name for it, and its layout.
struct Operand {
  int name;
  memory::desc layout;
};

struct Prepared {
  dnnl::primitive primitive;
  memory::desc scratchpad;
  Operand weight;
  std::vector<Operand> others;
  memory::desc weight_layout;               // the layout that the primitive needs
  std::optional<dnnl::reorder> rearrange;   // converts the weight to that layout, or back if it is the result
};

template <typename Description>
Prepared Prepare(const Description& pd, const memory::desc& weight_layout, Operand weight,
                 std::vector<Operand> others) {
  Prepared prepared{dnnl::primitive(pd.get()), pd.scratchpad_desc(), weight,
                    std::move(others),         weight_layout,        std::nullopt};
  if (weight_layout != weight.layout) {
    auto from = weight.layout, to = weight_layout;
    if (weight.name == DNNL_ARG_DIFF_WEIGHTS) std::swap(from, to);
    prepared.rearrange.emplace(dnnl::reorder::primitive_desc(Engine(), from, Engine(), to));
  }
  return prepared;
}

// Returns whether the first window that begins after the low padding of an axis ends before the high padding.
inline bool SomeWindowIsWithin(const Convolution& c, size_t axis) {
  const Window& w = c.window;
  int64_t extent = w.dilation[axis] * (c.weight.dimensions()[axis + 2] - 1) + 1;
  int64_t behind = (w.stride[axis] - w.low[axis] % w.stride[axis]) % w.stride[axis];
  return behind + extent <= c.x.dimensions()[axis + 1];
}

enum class Kind : int64_t { kProduct, kOutput, kInputDiff, kWeightDiff };

inline Prepared Prepare(Kind kind, const Convolution& c) {
  const Window& w = c.window;
  auto dims = [](Numbers numbers) { return Dims(numbers.begin(), numbers.end()); };
  Dims stride = dims(w.stride), dilation = dims(w.dilation), low = dims(w.low), high = dims(w.high);
  for (auto& d : dilation) --d;  // oneDNN counts the skipped cells
  auto x = ChannelsLast(c.x.dimensions()), y = ChannelsLast(c.y.dimensions());
  auto weight = Weight(c.weight.dimensions(), w.groups), any = AnyOrder(weight);
  auto bias = c.bias ? Plain({c.bias->dimensions()[0]}) : memory::desc();
  auto direct = dnnl::algorithm::convolution_direct;

  auto pass = kind == Kind::kOutput ? dnnl::prop_kind::forward_inference : dnnl::prop_kind::forward_training;
  dnnl::convolution_forward::primitive_desc forward(Engine(), pass, direct, x, any, bias, y, stride, dilation, low,
                                                    high, Attributes());
  if (kind == Kind::kOutput) {
    return Prepare(forward, forward.weights_desc(), {DNNL_ARG_WEIGHTS, weight},
                   {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y}, {DNNL_ARG_BIAS, bias}});
  }
  if (kind == Kind::kInputDiff) {
    dnnl::convolution_backward_data::primitive_desc pd(Engine(), direct, x, any, y, stride, dilation, low, high,
                                                       forward, Attributes());
    return Prepare(pd, pd.weights_desc(), {DNNL_ARG_WEIGHTS, weight}, {{DNNL_ARG_DIFF_SRC, x}, {DNNL_ARG_DIFF_DST, y}});
  }
  dnnl::convolution_backward_weights::primitive_desc pd(Engine(), direct, x, any, bias, y, stride, dilation, low, high,
                                                        forward, Attributes());
  // oneDNN's JIT kernels write beyond their arrays if one window covers the low and the high padding of the depth, such
  // as kernel 4, stride 2, pad 3 on a depth of 3. Its other implementations do not.
  if (c.x.dimensions().size() == 5 && !SomeWindowIsWithin(c, 0)) {
    while (std::string(pd.impl_info_str()).rfind("jit", 0) == 0 && pd.next_impl()) continue;
  }
  return Prepare(pd, pd.diff_weights_desc(), {DNNL_ARG_DIFF_WEIGHTS, weight},
                 {{DNNL_ARG_SRC, x}, {DNNL_ARG_DIFF_DST, y}, {DNNL_ARG_DIFF_BIAS, bias}});
}

inline Prepared Prepare(const Product& p) {
  int64_t m = p.M(), k = p.K(), n = p.N();
  auto a = Strided({m, k}, p.transpose_a ? Dims{1, m} : Dims{k, 1});
  auto b = Strided({k, n}, p.transpose_b ? Dims{1, k} : Dims{n, 1});
  auto c = Plain({m, n}), bias = p.bias ? Plain({1, n}) : memory::desc();
  dnnl::matmul::primitive_desc pd(Engine(), a, b, bias, c, Attributes());
  return Prepare(pd, b, {DNNL_ARG_WEIGHTS, b}, {{DNNL_ARG_SRC, a}, {DNNL_ARG_DST, c}, {DNNL_ARG_BIAS, bias}});
}

// Creating a primitive compiles its code, so recently used primitives are cached. oneDNN's own cache has the same size.
inline Cache<Prepared>& PrimitiveCache() {
  static auto& cache = *new Cache<Prepared>(1024);
  return cache;
}

// Memory for one call, because XLA's CPU runtime offers no scratch memory.
class Space {
 public:
  memory Of(const memory::desc& desc) {
    constexpr size_t kAlignment = 64;
    size_t size = (desc.get_size() + kAlignment - 1) / kAlignment * kAlignment;
    std::unique_ptr<void, Free> block(size ? std::aligned_alloc(kAlignment, size) : nullptr);
    if (size && !block) throw std::bad_alloc();
    blocks_.push_back(std::move(block));
    return memory(desc, Engine(), blocks_.back().get());
  }

 private:
  struct Free {
    void operator()(void* block) const { std::free(block); }
  };
  std::vector<std::unique_ptr<void, Free>> blocks_;
};

// Runs a primitive on a weight and the other operands, in order. A missing bias is omitted.
inline void Run(const Prepared& p, const Array& weight, std::initializer_list<std::optional<Array>> others) {
  Space space;
  std::unordered_map<int, memory> arguments;
  auto other = p.others.begin();
  for (const auto& array : others) {
    if (array) arguments.emplace(other->name, memory(other->layout, Engine(), array->untyped_data()));
    ++other;
  }
  memory caffes(p.weight.layout, Engine(), weight.untyped_data());
  memory reordered = p.rearrange ? space.Of(p.weight_layout) : caffes;
  arguments.emplace(p.weight.name, reordered);
  arguments.emplace(DNNL_ARG_SCRATCHPAD, space.Of(p.scratchpad));

  bool result = p.weight.name == DNNL_ARG_DIFF_WEIGHTS;
  if (p.rearrange && !result) p.rearrange->execute(Stream(), caffes, reordered);
  p.primitive.execute(Stream(), arguments);
  if (p.rearrange && result) p.rearrange->execute(Stream(), reordered, caffes);
  Stream().wait();
}

inline Key KeyOf(Kind kind, const Convolution& c) {
  const Window& w = c.window;
  Key key{static_cast<int64_t>(kind), c.bias.has_value(), w.groups};
  key.reserve(32);
  for (Numbers part :
       {c.x.dimensions(), c.weight.dimensions(), c.y.dimensions(), w.stride, w.dilation, w.low, w.high}) {
    key.insert(key.end(), part.begin(), part.end());
  }
  return key;
}

CAFFEJAX_FOR_EACH_PROCESSOR
static void ReplaceNegatives(float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = y[i] <= 0 ? 0 : y[i];
}

// Applies a ReLU in place. Unlike oneDNN's ReLU it keeps NaN, as Caffe's does.
inline void ApplyRelu(const Array& y) {
  constexpr int64_t kFewCells = 1 << 16;  // one thread takes as long for these as waking another
  int64_t cells = y.element_count();
  InParallelRanges(cells <= kFewCells ? 1 : MaxThreads(), cells,
                   [&](int64_t start, int64_t end) { ReplaceNegatives(y.typed_data() + start, end - start); });
}

// Computes one of the convolution's three arrays from the other two, by oneDNN.
inline void RunByOneDnn(Kind kind, const Convolution& c) {
  auto prepared = PrimitiveCache().Get(KeyOf(kind, c), [&] { return Prepare(kind, c); });
  Run(*prepared, c.weight, {c.x, c.y, c.bias});
}

// Computes c = a b.
inline void Run(const Product& p) {
  Key key{static_cast<int64_t>(Kind::kProduct), p.M(), p.N(), p.K(), p.transpose_a, p.transpose_b, p.bias.has_value()};
  auto prepared = PrimitiveCache().Get(key, [&] { return Prepare(p); });
  Run(*prepared, p.b, {p.a, p.c, p.bias});
}

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_ONEDNN_PRIMITIVES_H_
