// Many threads ask a cache for values; ends with 1 at what must not be. Compiled and run by test_thread_safety.py.

#include "lru_cache.h"

#include <atomic>
#include <cstdio>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

using caffejax::Cache;
using caffejax::Key;

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::_Exit(1);
}

struct Counted {
  static inline std::atomic<int> alive = 0;
  explicit Counted(int64_t number) : number(number) { ++alive; }
  Counted(Counted&& other) : number(other.number) { ++alive; }
  ~Counted() { --alive; }
  int64_t number;
};

int num_created = 0;

std::shared_ptr<const Counted> Get(Cache<Counted>& cache, int64_t number) {
  return cache.Get({number}, [&] { return ++num_created, Counted(number); });
}

void RecentlyUsedValuesAreKept() {
  Cache<Counted> cache(3);
  for (int64_t number : {1, 2, 3, 1, 4}) Get(cache, number);  // 2 was not asked for longest
  Require(num_created == 4 && Counted::alive == 3, "not as many are kept as there may be");
  for (int64_t number : {1, 3, 4}) Get(cache, number);
  Require(num_created == 4, "one of the last is made again");
  auto kept_value = Get(cache, 2);
  for (int64_t number = 10; number < 20; ++number) Get(cache, number);
  Require(kept_value->number == 2 && Counted::alive == 4, "one that is in use is gone, or one that is not is there");
}

void FailuresAreNotCached() {
  Cache<Counted> cache(3);
  bool failed = false;
  try {
    cache.Get({1}, []() -> Counted { throw std::runtime_error("no"); });
  } catch (const std::runtime_error&) {
    failed = true;
  }
  Require(failed && Get(cache, 1)->number == 1, "an error is kept");
}

// Each key is being made by one thread while another looks up others.
void OtherKeysAreNotBlocked() {
  Cache<Counted> cache(3);
  std::atomic<bool> found_other_key = false;
  std::thread slow_thread([&] {
    cache.Get({1}, [&] {
      while (!found_other_key) std::this_thread::yield();
      return Counted(1);
    });
  });
  std::thread other_thread([&] {
    cache.Get({2}, [] { return Counted(2); });
    found_other_key = true;
  });
  slow_thread.join();
  other_thread.join();
}

void ManyThreadsGetTheRightValues() {
  Cache<Counted> cache(8);
  std::vector<std::thread> threads;
  for (int64_t seed = 1; seed <= 8; ++seed) {
    threads.emplace_back([&cache, seed] {
      for (int64_t i = 0; i < 5000; ++i) {
        int64_t number = i * seed % 13;
        Require(cache.Get({number}, [&] { return Counted(number); })->number == number, "another key's value");
      }
    });
  }
  for (auto& thread : threads) thread.join();
  Require(Counted::alive == 8, "not as many are kept as there may be");
}

}  // namespace

int main() {
  RecentlyUsedValuesAreKept();
  FailuresAreNotCached();
  OtherKeysAreNotBlocked();
  ManyThreadsGetTheRightValues();
  Require(Counted::alive == 0, "a cache leaves values behind");
}
