// Memory layouts of the arrays of a frozen net, as oneDNN descriptions.

#ifndef CAFFEJAX_KERNELS_MEMORY_LAYOUT_H_
#define CAFFEJAX_KERNELS_MEMORY_LAYOUT_H_

#include <string>

#include "onednn_primitives.h"
#include "program.h"

namespace caffejax {

inline constexpr int64_t kBlock = 16;  // adjacent channels: the floats of an AVX-512 register

inline bool IsSpatial(const Dims& dims) { return 3 <= dims.size() && dims.size() <= 5; }

// (batch, channels, *space) in blocks of channels: (batch, channels / block, *space, block).
inline memory::desc ByBlocks(const Dims& dims, Type type = Type::f32) {
  Require(IsSpatial(dims), "an array of ", dims.size(), " axes does not have 1 to 3 spatial axes");
  using tag = memory::format_tag;
  tag by_rank[] = {tag::nCw16c, tag::nChw16c, tag::nCdhw16c};
  return memory::desc(dims, type, by_rank[dims.size() - 3]);
}

// (batch, channels, *space) with the channels last in memory.
inline memory::desc ByPixels(const Dims& dims, Type type = Type::f32) {
  Require(IsSpatial(dims), "an array of ", dims.size(), " axes does not have 1 to 3 spatial axes");
  using tag = memory::format_tag;
  tag by_rank[] = {tag::nwc, tag::nhwc, tag::ndhwc};
  return memory::desc(dims, type, by_rank[dims.size() - 3]);
}

inline memory::desc AnyOrder(const Dims& dims, Type type = Type::f32) {
  return memory::desc(dims, type, memory::format_tag::any);
}

inline bool IsQuantized(Type type) { return type == Type::s8 || type == Type::u8; }

inline bool IsQuantized(const memory::desc& layout) { return IsQuantized(layout.get_data_type()); }

// The layout of numbers of less than 32 bits: channels last, which oneDNN's kernels for these types need.
inline memory::desc Narrow(const Dims& dims, Type type) {
  return IsSpatial(dims) ? ByPixels(dims, type) : Plain(dims, type);
}

// The same layout for a different type. A layout in blocks becomes the plain one.
inline memory::desc WithType(const memory::desc& layout, Type type) {
  if (layout.get_data_type() == type) return layout;
  return layout.get_inner_nblks() ? Plain(layout.get_dims(), type)
                                  : Strided(layout.get_dims(), layout.get_strides(), type);
}

// One number for each channel, to broadcast over arrays with `rank` axes.
inline memory::desc AlongChannels(int64_t channels, size_t rank) {
  Require(rank >= 2, "an array of ", rank, " axes has no channels");
  Dims dims(rank, 1);
  dims[1] = channels;
  return Plain(dims);
}

// A weight in Caffe's order, with an axis of groups if there are several.
inline Dims ByGroups(Dims weight, int64_t groups) {
  if (groups > 1) {
    weight[0] /= groups;
    weight.insert(weight.begin(), groups);
  }
  return weight;
}

// A deconvolution's weight. Its first axis is the inputs in Caffe and the outputs in oneDNN, so the first two axes (of
// a group) are swapped. `weight` is the shape in Caffe.
inline memory::desc Swapped(const Dims& weight, int64_t groups) {
  Dims dims = ByGroups(weight, groups);
  Dims strides = Plain(dims).get_strides();
  size_t outputs = groups > 1 ? 1 : 0;
  std::swap(dims[outputs], dims[outputs + 1]);
  std::swap(strides[outputs], strides[outputs + 1]);
  return Strided(dims, strides);
}

// A memory description as text, for comparison.
inline std::string Describe(const memory::desc& layout) {
  std::string text;
  Dims size_and_type{static_cast<int64_t>(layout.get_size()), static_cast<int64_t>(layout.get_data_type())};
  for (const Dims& numbers : {layout.get_dims(), layout.get_padded_dims(), layout.get_strides(),
                              layout.get_inner_blks(), layout.get_inner_idxs(), size_and_type}) {
    text += ";";
    for (int64_t number : numbers) text += " " + std::to_string(number);
  }
  return text;
}

// Returns whether an implementation is tuned for this processor, and is not oneDNN's reference code.
template <typename Description>
bool IsTuned(const Description& pd) {
  std::string name = pd.impl_info_str();
  return name.find("ref") == std::string::npos && name.find("simple") == std::string::npos;
}

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_MEMORY_LAYOUT_H_
