// Pointing a loaded library's calls of a function elsewhere: in its tables of addresses, and nobody else's.

#pragma once

#include <cstdint>
#include <cstring>

#include <link.h>
#include <sys/mman.h>

namespace tables {

constexpr size_t kPage = 4096;

struct Replacement {
  const char* name;
  void *old, *by;
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

// How many places were changed, in all libraries whose path holds some text.
inline int Replace(const char* part, const Replacement& replacement) {
  struct Search {
    const char* part;
    const Replacement& replacement;
    int count;
  } search{part, replacement, 0};
  auto visit = [](dl_phdr_info* info, size_t, void* argument) {
    auto& search = *static_cast<Search*>(argument);
    if (strstr(info->dlpi_name, search.part)) search.count += Library(*info).Replace(search.replacement);
    return 0;
  };
  dl_iterate_phdr(visit, &search);
  return search.count;
}

}  // namespace tables
