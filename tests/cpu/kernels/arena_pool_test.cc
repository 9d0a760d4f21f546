// Programs take blocks from the arena pool and return them; exits with 1 on a failure. Compiled and run by
// test_thread_safety.py.

#include "arena_pool.h"

#include <cstdio>
#include <cstring>
#include <thread>

namespace {

using caffejax::ArenaPool;

void Require(bool holds, const char* failure) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", failure);
  std::_Exit(1);
}

char* AddressOf(const ArenaPool::Block& block) { return block.bytes.get(); }

void SmallerProgramsReuseABlock() {
  ArenaPool pool;
  pool.AddProgram(100'000);
  pool.AddProgram(5'000'000);
  auto large = pool.Take(5'000'000, nullptr);
  Require(large.size >= 5'000'000, "a block is too small");
  char* address = AddressOf(large);
  pool.Return(std::move(large));
  auto reused = pool.Take(100'000, nullptr), second = pool.Take(100'000, nullptr);
  Require(AddressOf(reused) == address, "an idle block is not reused");
  Require(AddressOf(second) != address, "a block is in use twice");
  char* last = AddressOf(second);
  pool.Return(std::move(reused));
  pool.Return(std::move(second));
  Require(AddressOf(pool.Take(100'000, address)) == address, "a call does not find the block of the last call");
  Require(AddressOf(pool.Take(100'000, nullptr)) == last, "the smallest block is not taken first");
}

void BlocksAreFreedWithTheirPrograms() {
  ArenaPool pool;
  pool.AddProgram(100'000);
  pool.AddProgram(5'000'000);
  auto in_use = pool.Take(5'000'000, nullptr);
  pool.Return(pool.Take(5'000'000, nullptr));
  pool.RemoveProgram(5'000'000);
  pool.Return(std::move(in_use));
  Require(pool.Take(100'000, nullptr).size < 5'000'000, "a block remains that no program needs");
  pool.RemoveProgram(100'000);
}

void ThreadsDoNotShareABlock() {
  ArenaPool pool;
  std::vector<std::thread> threads;
  for (int number = 1; number <= 8; ++number) {
    threads.emplace_back([&pool, number] {
      size_t size = 1000 * number;
      pool.AddProgram(size);
      char* last = nullptr;
      for (int i = 0; i < 2000; ++i) {
        auto block = pool.Take(size, last);
        last = AddressOf(block);
        std::memset(last, number, size);
        for (size_t k = 0; k < size; k += 100) Require(last[k] == number, "another thread wrote into a block");
        pool.Return(std::move(block));
      }
      pool.RemoveProgram(size);
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace

int main() {
  SmallerProgramsReuseABlock();
  BlocksAreFreedWithTheirPrograms();
  ThreadsDoNotShareABlock();
}
