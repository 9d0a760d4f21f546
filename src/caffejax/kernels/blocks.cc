// Large blocks of memory that jaxlib frees are kept for its next request.
//
// XLA's CPU client asks malloc for the temporary memory of each run and frees it at the end. Blocks of that size go back
// to the system, which has to find and clear every page again for the next run. There is no other way in: the tables
// through which jaxlib's libraries call posix_memalign and free are made to point here.
//
// Every block is the C library's own; only the freeing is put off. So it does not matter who frees one: a library whose
// table was not changed, because it was loaded later or is not jaxlib's, ends its life as that of any other block.

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <list>
#include <mutex>
#include <new>
#include <thread>

#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tables.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kLarge = size_t{1} << 20, kHugePage = size_t{2} << 20;

// One that jaxlib has freed. It begins where a huge page does, so it suits any alignment up to that.
struct Block {
  void* start;
  size_t size;  // that can be used
  Clock::time_point idle_since;
};

using Blocks = std::list<Block>;

// Frees them, once nobody waits for the lock. Their pages go back to the system even where the C library would keep them.
void Release(Blocks leaving) {
  for (const Block& block : leaving) {
    madvise(block.start, block.size / tables::kPage * tables::kPage, MADV_DONTNEED);
    free(block.start);
  }
}

// The blocks that nobody uses. All that changes them is done under one lock.
class Idle {
 public:
  // How long a block is kept for, and how many bytes are at most.
  void Limit(Clock::duration patience, size_t most) {
    Blocks leaving;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      patience_ = patience;
      most_ = most;
      Shrink(most_, &leaving);
    }
    changed_.notify_all();
    Release(std::move(leaving));
  }

  // The smallest block that has room for so many bytes, and is not much larger; null if there is none. Then a new one is
  // to come, and as much leaves that idle blocks and that one stay within the most: under a control group's limit nothing
  // is refused, but the process is killed.
  void* Take(size_t size) {
    Blocks leaving;
    void* start = Find(size, &leaving);
    if (!leaving.empty()) Release(std::move(leaving));
    return start;
  }

  // Whether it keeps the block; else it is to be freed.
  bool Keep(void* start, size_t size) {
    Blocks leaving;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (size > most_ || !Watched()) return false;
      Shrink(most_ - size, &leaving);
      try {
        blocks_.push_back({start, size, Clock::now()});
      } catch (const std::bad_alloc&) {
        return false;
      }
      bytes_ += size;
    }
    Release(std::move(leaving));
    return true;
  }

  // Whether there was anything to free.
  bool ReleaseAll() {
    Blocks leaving;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      Shrink(0, &leaving);
    }
    bool any = !leaving.empty();
    Release(std::move(leaving));
    return any;
  }

  size_t Bytes() {
    std::lock_guard<std::mutex> lock(mutex_);
    return bytes_;
  }

  void BeforeFork() { mutex_.lock(); }
  void InParent() { mutex_.unlock(); }

  // The thread has not come along.
  void InChild() {
    watched_ = false;
    new (&changed_) std::condition_variable;
    mutex_.unlock();
  }

 private:
  void* Find(size_t size, Blocks* leaving) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto best = blocks_.end();
    for (auto block = blocks_.begin(); block != blocks_.end(); ++block) {
      // up to twice the size; the C library leaves a block some of what it took to align it
      bool fits = size <= block->size && block->size <= 2 * size + kHugePage + tables::kPage;
      if (fits && (best == blocks_.end() || block->size <= best->size)) best = block;
    }
    if (best == blocks_.end()) {
      Shrink(most_ > size ? most_ - size : 0, leaving);
      return nullptr;
    }
    void* start = best->start;
    bytes_ -= best->size;
    blocks_.erase(best);
    return start;
  }

  // Moves the blocks that are idle longest away, until the others have at most so many bytes.
  void Shrink(size_t bytes, Blocks* leaving) {
    while (bytes_ > bytes) {
      bytes_ -= blocks_.front().size;
      leaving->splice(leaving->end(), blocks_, blocks_.begin());
    }
  }

  // Whether there is a thread that frees what is idle for too long; makes one if not. It ends when nothing is idle.
  bool Watched() {
    if (watched_) return true;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the program's own threads
    try {
      std::thread([this] { Watch(); }).detach();
      watched_ = true;
    } catch (const std::exception&) {
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return watched_;
  }

  void Watch() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!blocks_.empty()) {
      auto due = blocks_.front().idle_since + patience_;
      if (Clock::now() < due) {
        changed_.wait_until(lock, due);
        continue;
      }
      Blocks leaving;
      Shrink(bytes_ - 1, &leaving);  // the first
      lock.unlock();
      Release(std::move(leaving));
      lock.lock();
    }
    watched_ = false;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  Blocks blocks_;  // the longest idle first
  size_t bytes_ = 0, most_ = 0;
  Clock::duration patience_{};
  bool watched_ = false;
};

Idle& TheIdle() {
  static Idle& idle = *new Idle;  // jaxlib frees until the very end of the process, and the thread may outlive that
  return idle;
}

// A new block; a large one on huge pages.
int Ask(void** result, size_t alignment, size_t size, bool large) {
  int error = posix_memalign(result, large ? kHugePage : alignment, size);
  if (large && error == 0) madvise(*result, size / kHugePage * kHugePage, MADV_HUGEPAGE);
  return error;
}

std::atomic<int> replaced{0};  // of jaxlib's calls for memory

}  // namespace

// What jaxlib calls in place of posix_memalign.
extern "C" int caffejax_allocate(void** result, size_t alignment, size_t size) {
  if (size > PTRDIFF_MAX - kHugePage) return ENOMEM;  // aligned, it would not be a size any more
  bool aligned = alignment && kHugePage % alignment == 0 && alignment % sizeof(void*) == 0;
  bool large = size >= kLarge && aligned;
  if (void* kept = large ? TheIdle().Take(size) : nullptr) {
    *result = kept;
    return 0;
  }
  int error = Ask(result, alignment, size, large);
  return error == ENOMEM && TheIdle().ReleaseAll() ? Ask(result, alignment, size, large) : error;
}

// What jaxlib calls in place of free.
extern "C" void caffejax_free(void* block) {
  int before = errno;
  bool could_be = block && reinterpret_cast<uintptr_t>(block) % kHugePage == 0;
  size_t size = could_be ? malloc_usable_size(block) : 0;
  if (size < kLarge || !TheIdle().Keep(block, size)) free(block);
  errno = before;
}

// Lets jaxlib's large blocks be kept for so many seconds, and so many bytes of them at most. How many of its calls for
// memory now come here; 0 if this jaxlib has none that are known.
extern "C" int caffejax_keep_blocks(double seconds, size_t most) {
  TheIdle().Limit(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)), most);
  static const int count = [] {
    if (sysconf(_SC_PAGESIZE) != tables::kPage) return 0;
    pthread_atfork([] { TheIdle().BeforeFork(); }, [] { TheIdle().InParent(); }, [] { TheIdle().InChild(); });
    auto in_jaxlib = [](const char* name, auto* old, auto* by) {
      return tables::Replace("/jaxlib/", {name, reinterpret_cast<void*>(old), reinterpret_cast<void*>(by)});
    };
    int calls = in_jaxlib("posix_memalign", &posix_memalign, &caffejax_allocate);
    if (calls) in_jaxlib("free", &free, &caffejax_free);
    return calls;
  }();
  return replaced = count;
}

// How many of jaxlib's calls for memory come here now.
extern "C" int caffejax_replaced() { return replaced; }

// Bytes that are kept and that nobody uses.
extern "C" size_t caffejax_idle() { return TheIdle().Bytes(); }
