// Packs the weights of a frozen net and runs its steps; several threads may run one program at the same time.

#ifndef CAFFEJAX_KERNELS_PROGRAM_RUN_H_
#define CAFFEJAX_KERNELS_PROGRAM_RUN_H_

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "arena_pool.h"
#include "plan_builder.h"

namespace caffejax {

// A location whose address is known only during a call.
struct UnboundMemory {
  dnnl_memory_t memory;
  int64_t number;  // the index of the argument, result or packed weight
  size_t offset;
};

// The operands of a program's primitives, for one call at a time.
class Workspace {
 public:
  explicit Workspace(const Steps& steps) : steps_(steps) {
    for (const Step& step : steps.steps) {
      std::vector<dnnl_exec_arg_t> operands;
      for (const auto& [number, tensor] : step.operands) operands.push_back({number, MemoryOf(tensor)});
      operands_.push_back(std::move(operands));
    }
  }

  void Run(const std::vector<char*>& arguments, const std::vector<char*>& results, const std::vector<char*>& weights) {
    ArenaPool::Block arena = ArenaPool::Get().Take(steps_.arena_size, arena_);
    if (arena.bytes.get() != arena_) {
      arena_ = arena.bytes.get();
      for (const UnboundMemory& m : values_) Set(m, arena_);
    }
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
    ArenaPool::Get().Return(std::move(arena));
  }

 private:
  static void Set(const UnboundMemory& m, char* base) {
    dnnl::error::wrap_c_api(dnnl_memory_set_data_handle(m.memory, base + m.offset), "could not place an array");
  }

  dnnl_memory_t MemoryOf(const Tensor& tensor) {
    const Buffer& b = steps_.buffers[tensor.buffer];
    memories_.push_back(memory(tensor.layout, Engine(), DNNL_MEMORY_NONE));
    dnnl_memory_t handle = memories_.back().get();
    UnboundMemory unbound{handle, b.number, tensor.offset};
    if (b.kind == BufferKind::kArena) values_.push_back({handle, 0, b.offset + tensor.offset});
    if (b.kind == BufferKind::kArgument) arguments_.push_back(unbound);
    if (b.kind == BufferKind::kResult) results_.push_back(unbound);
    if (b.kind == BufferKind::kWeights) weights_.push_back(unbound);
    return handle;
  }

  const Steps& steps_;
  std::vector<memory> memories_;
  std::vector<UnboundMemory> values_, arguments_, results_, weights_;
  std::vector<std::vector<dnnl_exec_arg_t>> operands_;
  char* arena_ = nullptr;     // the address of the arena in the last call
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
  if (p.transform) return p.transform(weight, reinterpret_cast<float*>(packed));
  Reorder(p.source, const_cast<float*>(weight), p.layout, packed);
}

// Reorders a packed weight back to Caffe's layout.
inline void Unpack(const Packed& p, char* packed, float* weight) {
  Require(!p.transform, "a transformed weight cannot be unpacked");
  ScopedSingleThread one(static_cast<int64_t>(p.layout.get_size()) <= kSmallWeight);
  Reorder(p.layout, packed, p.source, weight);
}

// A built program, and the workspaces that are free for the next calls.
class Frozen {
 public:
  explicit Frozen(const std::string& text) : program(ReadProgram(text)), steps(Build::Of(program)) {
    ArenaPool::Get().AddProgram(steps.arena_size);
  }

  Frozen(const Frozen&) = delete;
  ~Frozen() { ArenaPool::Get().RemoveProgram(steps.arena_size); }

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
