// Large blocks of memory that jaxlib frees are kept for its next request.
//
// XLA's CPU client asks malloc for the temporary memory of each run and frees it at the end. Blocks of that size go back
// to the system, which has to find and clear every page again for the next run. There is no other way in: the tables
// through which jaxlib's libraries call posix_memalign and free are made to point here. Only their own large blocks are
// concerned, and nothing else in the process.

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <list>
#include <mutex>
#include <unordered_map>

#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

constexpr size_t kLarge = size_t{1} << 20, kHugePage = size_t{2} << 20, kPage = 4096;
constexpr uint64_t kPatience = 64;  // requests that pass an idle block by before it goes back to the system

struct Block {
  void* base;       // of the mapping
  size_t length;    // of the mapping
  void* start;      // what is given out
  size_t size;      // how much of it
  uint64_t idle_since;
};

class Blocks {
 public:
  // Null if there is no memory.
  void* Take(size_t size) {
    std::lock_guard<std::mutex> lock(mutex);
    ++requests_;
    auto best = idle_.end();
    for (auto block = idle_.begin(); block != idle_.end();) {
      bool fits = size <= block->size && block->size / 2 <= size;
      if (fits && (best == idle_.end() || block->size < best->size)) best = block;
      if (!fits && requests_ - block->idle_since > kPatience) {
        munmap(block->base, block->length);
        block = idle_.erase(block);
      } else {
        ++block;
      }
    }
    Block block;
    if (best != idle_.end()) {
      block = *best;
      idle_.erase(best);
    } else if (!Map(size, &block)) {
      return nullptr;
    }
    used_.emplace(block.start, block);
    return block.start;
  }

  // Whether the block is one of these.
  bool GiveBack(void* start) {
    std::lock_guard<std::mutex> lock(mutex);
    auto found = used_.find(start);
    if (found == used_.end()) return false;
    found->second.idle_since = requests_;
    idle_.push_back(found->second);
    used_.erase(found);
    return true;
  }

  std::mutex mutex;

 private:
  static bool Map(size_t size, Block* block) {
    size_t length = size + kHugePage;
    void* base = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return false;
    auto start = (reinterpret_cast<uintptr_t>(base) + kHugePage - 1) / kHugePage * kHugePage;
    void* aligned = reinterpret_cast<void*>(start);
    madvise(aligned, size / kHugePage * kHugePage, MADV_HUGEPAGE);
    *block = {base, length, aligned, size, 0};
    return true;
  }

  std::unordered_map<void*, Block> used_;
  std::list<Block> idle_;
  uint64_t requests_ = 0;
};

Blocks& All() {
  static Blocks& blocks = *new Blocks;  // jaxlib frees until the very end of the process
  return blocks;
}

int Allocate(void** result, size_t alignment, size_t size) {
  if (size >= kLarge && alignment <= kHugePage) {
    if (void* block = All().Take(size)) {
      *result = block;
      return 0;
    }
  }
  return posix_memalign(result, alignment, size);
}

void Free(void* block) {
  bool could_be = block && reinterpret_cast<uintptr_t>(block) % kHugePage == 0;
  if (!could_be || !All().GiveBack(block)) free(block);
}

struct Replacement {
  const char* name;
  void *old, *by;
};

const Replacement kReplacements[] = {
    {"posix_memalign", reinterpret_cast<void*>(&posix_memalign), reinterpret_cast<void*>(&Allocate)},
    {"free", reinterpret_cast<void*>(&free), reinterpret_cast<void*>(&Free)},
};

// The parts of a loaded library that say where it calls what.
struct Library {
  uintptr_t base, protected_from = 0, protected_to = 0;
  const ElfW(Sym)* symbols = nullptr;
  const char* names = nullptr;
  struct {
    const ElfW(Rela)* first = nullptr;
    size_t bytes = 0;
  } tables[2];

  explicit Library(const dl_phdr_info& info) : base(info.dlpi_addr) {
    for (int i = 0; i < info.dlpi_phnum; ++i) {
      const auto& part = info.dlpi_phdr[i];
      if (part.p_type == PT_GNU_RELRO) {
        protected_from = base + part.p_vaddr;
        protected_to = protected_from + part.p_memsz;
      }
      if (part.p_type != PT_DYNAMIC) continue;
      for (auto entry = reinterpret_cast<const ElfW(Dyn)*>(base + part.p_vaddr); entry->d_tag != DT_NULL; ++entry) {
        auto address = entry->d_un.d_ptr < base ? base + entry->d_un.d_ptr : entry->d_un.d_ptr;
        switch (entry->d_tag) {
          case DT_SYMTAB: symbols = reinterpret_cast<const ElfW(Sym)*>(address); break;
          case DT_STRTAB: names = reinterpret_cast<const char*>(address); break;
          case DT_RELA: tables[0].first = reinterpret_cast<const ElfW(Rela)*>(address); break;
          case DT_RELASZ: tables[0].bytes = entry->d_un.d_val; break;
          case DT_JMPREL: tables[1].first = reinterpret_cast<const ElfW(Rela)*>(address); break;
          case DT_PLTRELSZ: tables[1].bytes = entry->d_un.d_val; break;
        }
      }
    }
  }

  // How many places were changed.
  int Replace(const Replacement& replacement) const {
    int count = 0;
    for (const auto& table : tables) {
      if (!table.first || !symbols || !names) continue;
      for (size_t i = 0; i < table.bytes / sizeof(ElfW(Rela)); ++i) {
        auto symbol = table.first[i].r_info >> 32;
        if (!symbol || strcmp(names + symbols[symbol].st_name, replacement.name) != 0) continue;
        auto place = reinterpret_cast<void**>(base + table.first[i].r_offset);
        if (*place == replacement.old && Write(place, replacement.by)) ++count;
      }
    }
    return count;
  }

  bool Write(void** place, void* value) const {
    auto address = reinterpret_cast<uintptr_t>(place);
    auto page = reinterpret_cast<void*>(address / kPage * kPage);
    bool read_only = protected_from <= address && address < protected_to;
    if (read_only && mprotect(page, kPage, PROT_READ | PROT_WRITE) != 0) return false;
    __atomic_store_n(place, value, __ATOMIC_RELEASE);
    if (read_only) mprotect(page, kPage, PROT_READ);
    return true;
  }
};

int Visit(dl_phdr_info* info, size_t, void* argument) {
  auto& [replacement, count] = *static_cast<std::pair<const Replacement*, int>*>(argument);
  if (strstr(info->dlpi_name, "/jaxlib/")) count += Library(*info).Replace(*replacement);
  return 0;
}

int InJaxlib(const Replacement& replacement) {
  std::pair<const Replacement*, int> argument{&replacement, 0};
  dl_iterate_phdr(Visit, &argument);
  return argument.second;
}

}  // namespace

// How many of jaxlib's calls for memory now come here; 0 if this jaxlib has none that are known.
extern "C" int caffejax_keep_blocks() {
  static const int count = [] {
    // free first, and in every library: a block may be freed by another than the one that asked for it
    if (sysconf(_SC_PAGESIZE) != kPage || InJaxlib(kReplacements[1]) == 0) return 0;
    pthread_atfork([] { All().mutex.lock(); }, [] { All().mutex.unlock(); }, [] { All().mutex.unlock(); });
    return InJaxlib(kReplacements[0]);
  }();
  return count;
}
