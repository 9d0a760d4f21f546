// Packs the weights of a frozen net and runs its steps; several threads may run one program at the same time.

#ifndef CAFFEJAX_KERNELS_PROGRAM_RUN_H_
#define CAFFEJAX_KERNELS_PROGRAM_RUN_H_

#include <sys/mman.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "plan_builder.h"

namespace caffejax {

// A location whose address is known only during a call.
struct UnboundMemory {
  dnnl_memory_t memory;
  int64_t number;  // the index of the argument, result or packed weight
  size_t offset;
};

// The workspace of a call: memory for its values, and the operands of the primitives in this memory.
class Workspace {
 public:
  explicit Workspace(const Steps& steps) : steps_(steps), arena_(Allocate(steps.arena_size)) {
    for (const Step& step : steps.steps) {
      std::vector<dnnl_exec_arg_t> operands;
      for (const auto& [number, tensor] : step.operands) operands.push_back({number, MemoryOf(tensor)});
      operands_.push_back(std::move(operands));
    }
  }

  void Run(const std::vector<char*>& arguments, const std::vector<char*>& results, const std::vector<char*>& weights) {
    for (const UnboundMemory& m : arguments_) Set(m, arguments[m.number]);
    for (const UnboundMemory& m : results_) Set(m, results[m.number]);
    if (weights != bound_) {
      for (const UnboundMemory& m : weights_) Set(m, weights[m.number]);
      bound_ = weights;
    }
    for (size_t i = 0; i < operands_.size(); ++i) {
      const Step& step = steps_.steps[i];
      ScopedSingleThread one(step.alone);
      step.what->Run(operands_[i]);
    }
    Stream().wait();
  }

 private:
  struct Free {
    void operator()(char* block) const { std::free(block); }
  };

  static std::unique_ptr<char, Free> Allocate(size_t size) {
    constexpr size_t kPage = size_t{1} << 21;  // a large page: fewer pages need to be looked up
    size_t alignment = size < kPage ? 64 : kPage;
    size = (std::max<size_t>(size, 1) + alignment - 1) / alignment * alignment;
    std::unique_ptr<char, Free> block(static_cast<char*>(std::aligned_alloc(alignment, size)));
    if (!block) throw std::bad_alloc();
    if (alignment == kPage) madvise(block.get(), size, MADV_HUGEPAGE);
    return block;
  }

  static void Set(const UnboundMemory& m, char* base) {
    dnnl::error::wrap_c_api(dnnl_memory_set_data_handle(m.memory, base + m.offset), "could not place an array");
  }

  dnnl_memory_t MemoryOf(const Tensor& tensor) {
    const Buffer& b = steps_.buffers[tensor.buffer];
    bool in_arena = b.kind == BufferKind::kArena;
    memories_.emplace_back(tensor.layout, Engine(),
                           in_arena ? arena_.get() + b.offset + tensor.offset : DNNL_MEMORY_NONE);
    dnnl_memory_t handle = memories_.back().get();
    UnboundMemory unbound{handle, b.number, tensor.offset};
    if (b.kind == BufferKind::kArgument) arguments_.push_back(unbound);
    if (b.kind == BufferKind::kResult) results_.push_back(unbound);
    if (b.kind == BufferKind::kWeights) weights_.push_back(unbound);
    return handle;
  }

  const Steps& steps_;
  std::unique_ptr<char, Free> arena_;
  std::vector<memory> memories_;
  std::vector<UnboundMemory> arguments_, results_, weights_;
  std::vector<std::vector<dnnl_exec_arg_t>> operands_;
  std::vector<char*> bound_;  // the addresses of the weights in the last call
};

inline void Reorder(const memory::desc& from, void* source, const memory::desc& to, void* target) {
  memory read(from, Engine(), source), written(to, Engine(), target);
  dnnl::reorder(read, written).execute(Stream(), read, written);
  Stream().wait();
}

// Bytes of a weight up to which one thread packs it faster than several.
inline constexpr int64_t kSmallWeight = 1 << 20;

// Reorders a weight from Caffe's layout to a packed layout.
inline void Pack(const Packed& p, const float* weight, char* packed) {
  ScopedSingleThread one(static_cast<int64_t>(p.layout.get_size()) <= kSmallWeight);
  std::vector<float> transformed;
  if (p.transformed) transformed = TransformedWeight(weight, p.source.get_dims());
  auto source = p.transformed ? Plain(p.layout.get_dims()) : p.source;
  Reorder(source, const_cast<float*>(p.transformed ? transformed.data() : weight), p.layout, packed);
}

// Reorders a packed weight back to Caffe's layout.
inline void Unpack(const Packed& p, char* packed, float* weight) {
  Require(!p.transformed, "a transformed weight cannot be unpacked");
  ScopedSingleThread one(static_cast<int64_t>(p.layout.get_size()) <= kSmallWeight);
  Reorder(p.layout, packed, p.source, weight);
}

// A built program, and the workspaces that are free for the next calls.
class Frozen {
 public:
  Frozen(const double* numbers, size_t count) : program(ReadProgram(numbers, count)), steps(Build::Of(program)) {}

  const Program program;
  const Steps steps;

  void Run(const std::vector<char*>& arguments, const std::vector<char*>& results, const std::vector<char*>& weights) {
    std::unique_ptr<Workspace> workspace = Take();
    workspace->Run(arguments, results, weights);
    std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(std::move(workspace));
  }

 private:
  std::unique_ptr<Workspace> Take() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!idle_.empty()) {
        auto workspace = std::move(idle_.back());
        idle_.pop_back();
        return workspace;
      }
    }
    return std::make_unique<Workspace>(steps);
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> idle_;
};

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_PROGRAM_RUN_H_
