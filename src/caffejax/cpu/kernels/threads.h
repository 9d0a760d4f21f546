// Runs functions in oneDNN's OpenMP threads, because a second thread pool would compete for the same cores. Waking a
// sleeping thread takes 60 us, more than most layers of SqueezeNet.
//
// oneDNN depends on GNU's OpenMP. The loader finds its functions, so this code is not compiled or linked with OpenMP.

#ifndef CAFFEJAX_KERNELS_THREADS_H_
#define CAFFEJAX_KERNELS_THREADS_H_

#include <algorithm>
#include <cstdint>
#include <exception>
#include <mutex>

// A macro to put before a function. The compiler then compiles the function for several processors, and the loader
// chooses the version for this processor.
#define CAFFEJAX_FOR_EACH_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))

extern "C" {
__attribute__((weak)) void GOMP_parallel(void (*function)(void*), void* data, unsigned threads, unsigned flags);
__attribute__((weak)) int omp_get_thread_num();
__attribute__((weak)) int omp_get_num_threads();
__attribute__((weak)) int omp_get_max_threads();
__attribute__((weak)) void omp_set_num_threads(int threads);
}

namespace caffejax {

inline bool HasThreads() {
  return GOMP_parallel && omp_get_thread_num && omp_get_num_threads && omp_get_max_threads && omp_set_num_threads;
}

inline int MaxThreads() { return HasThreads() ? omp_get_max_threads() : 1; }

// If `enabled`, oneDNN creates primitives for one thread and runs them in one thread during the lifetime of the object.
class ScopedSingleThread {
 public:
  explicit ScopedSingleThread(bool enabled = true) : previous_threads_(enabled ? MaxThreads() : 1) {
    if (previous_threads_ > 1) Set(1);
  }
  ~ScopedSingleThread() {
    if (previous_threads_ > 1) Set(previous_threads_);
  }
  ScopedSingleThread(const ScopedSingleThread&) = delete;
  ScopedSingleThread& operator=(const ScopedSingleThread&) = delete;

 private:
  static void Set(int threads) {
    if (HasThreads()) omp_set_num_threads(threads);
  }

  int previous_threads_;
};

// Calls `work(thread, threads)` in at most this number of threads. If threads throw, one exception is thrown again.
template <typename Work>
void RunInParallel(int threads, Work work) {
  if (!HasThreads() || threads == 1) return work(0, 1);
  struct Shared {
    Work& work;
    std::mutex mutex;
    std::exception_ptr thrown;
  } shared{work, {}, {}};
  GOMP_parallel(
      [](void* all) {
        Shared& shared = *static_cast<Shared*>(all);
        try {
          shared.work(omp_get_thread_num(), omp_get_num_threads());
        } catch (...) {  // it must not leave the thread
          std::lock_guard<std::mutex> lock(shared.mutex);
          shared.thrown = std::current_exception();
        }
      },
      &shared, threads, 0);
  if (shared.thrown) std::rethrow_exception(shared.thrown);
}

// Calls `work(start, end)` in at most this number of threads, with ranges that together cover 0 to `count`. Ranges
// start at multiples of 16, a cache line of floats.
template <typename Work>
void InParallelRanges(int threads, int64_t count, Work work) {
  RunInParallel(threads, [&](int thread, int threads) {
    int64_t most = (count / threads + 16) / 16 * 16, start = std::min(count, thread * most);
    work(start, std::min(count, start + most));
  });
}

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_THREADS_H_
