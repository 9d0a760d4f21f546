// A thread-safe least-recently-used cache. oneDNN compiles code to create a primitive, so primitives are reused.

#ifndef CAFFEJAX_KERNELS_LRU_CACHE_H_
#define CAFFEJAX_KERNELS_LRU_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace caffejax {

using Key = std::vector<int64_t>;

struct HashOfKey {
  size_t operator()(const Key& key) const {
    uint64_t hash = key.size();
    for (int64_t number : key) hash = (hash ^ static_cast<uint64_t>(number)) * 0x9E3779B97F4A7C15 ^ hash >> 29;
    return hash;
  }
};

template <typename Value>
class Cache {
 public:
  // When the cache has more than `capacity` values, it drops the least recently used one. Its users keep it alive.
  explicit Cache(size_t capacity) : capacity_(capacity) {}

  // Returns the value of a key, and calls `make` to create it if there is none. Meanwhile other threads that need this
  // key wait, and other keys are not blocked. If `make` throws, nothing is stored.
  template <typename Make>
  std::shared_ptr<const Value> Get(const Key& key, Make make) {
    std::shared_ptr<Slot> slot = Find(key);
    std::lock_guard<std::mutex> lock(slot->mutex);
    if (!slot->value) slot->value.emplace(make());
    return {slot, &*slot->value};
  }

 private:
  struct Slot {
    std::mutex mutex;
    std::optional<Value> value;
  };
  using Slots = std::list<std::pair<Key, std::shared_ptr<Slot>>>;

  std::shared_ptr<Slot> Find(const Key& key) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto entry = by_key_.find(key);
    if (entry != by_key_.end()) {
      slots_.splice(slots_.begin(), slots_, entry->second);
      return entry->second->second;
    }
    Slots added{{key, std::make_shared<Slot>()}};
    by_key_.emplace(key, added.begin());
    slots_.splice(slots_.begin(), added);
    if (slots_.size() > capacity_) {
      by_key_.erase(slots_.back().first);
      slots_.pop_back();
    }
    return slots_.front().second;
  }

  const size_t capacity_;  // at least 1
  std::mutex mutex_;
  Slots slots_;  // the most recently used one first
  std::unordered_map<Key, typename Slots::iterator, HashOfKey> by_key_;
};

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_LRU_CACHE_H_
