/* A file system that fails, for LD_PRELOAD: what a program does in one folder is counted, and at a chosen moment it
 * fails, the program is killed or signalled, a command runs, or the clock goes back. From the environment:
 *
 *   FAULTS_ROOT   the folder (absolute); what is done elsewhere is left alone
 *   FAULTS_KINDS  which operations count, by their letters: c create or open for writing, w write, s sync, n rename or
 *                 link, m make a folder, u unlink, o open for reading, r read
 *   FAULTS_AT     at the how-manieth of them it happens; 0 for never
 *   FAULTS_FOR    how many fail from then on; 0 for all
 *   FAULTS_DO     kill: before the operation; half: after half of a write, or after anything else; error=N: fail with
 *                 that errno, a write having first written half; signal=N; run=COMMAND; clock=SECONDS: set back by these
 *   FAULTS_LOG    a file that has a line for each operation: its number, its letter, its path
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum strike { NONE, FAIL, HALF };  /* what befalls an operation; HALF ends the program after it */

static atomic_long count, set_back;
static atomic_int written_half;
static const char *root, *kinds, *does;
static long at, for_so_many;
static int log_file = -1;

#define REAL(name) \
  static __typeof__(name) *real; \
  if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void read_settings(void) {
  const char *log = getenv("FAULTS_LOG"), *n;
  kinds = getenv("FAULTS_KINDS");
  does = getenv("FAULTS_DO");
  at = (n = getenv("FAULTS_AT")) ? atol(n) : 0;
  for_so_many = (n = getenv("FAULTS_FOR")) ? atol(n) : 1;
  if (log) log_file = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  root = getenv("FAULTS_ROOT");
  unsetenv("LD_PRELOAD");  /* what the program starts is left alone */
}

static int below_root(const char *path) {
  size_t n = strlen(root);
  return strncmp(path, root, n) == 0 && (path[n] == '/' || path[n] == 0);
}

static void run_command(const char *command) {
  char *arguments[] = {"sh", "-c", (char *)command, NULL}, *environment[] = {"PATH=/usr/bin:/bin", NULL};
  pid_t child;
  if (posix_spawn(&child, "/bin/sh", NULL, NULL, arguments, environment) == 0) waitpid(child, NULL, 0);
}

static enum strike befalls(char kind, const char *path) {
  if (!root || !kinds || !strchr(kinds, kind) || !below_root(path)) return NONE;
  int before = errno;
  long n = atomic_fetch_add(&count, 1) + 1;
  if (log_file >= 0) dprintf(log_file, "%ld %c %s\n", n, kind, path);
  errno = before;
  if (!at || !does || n < at || (for_so_many && n >= at + for_so_many)) return NONE;
  if (!strncmp(does, "error=", 6)) {
    errno = atoi(does + 6);
    return FAIL;
  }
  if (n > at) return NONE;
  if (!strcmp(does, "kill")) kill(getpid(), SIGKILL);
  if (!strcmp(does, "half")) return HALF;
  if (!strncmp(does, "signal=", 7)) kill(getpid(), atoi(does + 7));
  if (!strncmp(does, "run=", 4)) run_command(does + 4);
  if (!strncmp(does, "clock=", 6)) atomic_store(&set_back, atol(does + 6));
  errno = before;
  return NONE;
}

static void of_descriptor(int file, char *path) {
  char link[64];
  int before = errno;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t n = readlink(link, path, PATH_MAX - 1);
  path[n > 0 ? n : 0] = 0;
  errno = before;
}

static enum strike at_place(char kind, int folder, const char *name) {
  char path[2 * PATH_MAX];
  if (!root) return NONE;
  if (!name) return NONE;
  if (name[0] == '/') return befalls(kind, name);
  if (folder != AT_FDCWD)
    of_descriptor(folder, path);
  else if (!getcwd(path, PATH_MAX))
    return NONE;
  size_t n = strlen(path);
  snprintf(path + n, PATH_MAX, "/%s", name);
  return befalls(kind, path);
}

static enum strike at_file(char kind, int file) {
  char path[PATH_MAX];
  if (!root) return NONE;
  of_descriptor(file, path);
  return path[0] == '/' ? befalls(kind, path) : NONE;
}

#define END kill(getpid(), SIGKILL)

/* An operation of a name: fails, or is done, after which the program may end. */
#define NAMED(kind, folder, name, failed, call) \
  enum strike strike = at_place(kind, folder, name); \
  if (strike == FAIL) return failed; \
  __typeof__(call) result = call; \
  if (strike == HALF) END; \
  return result

static char opening(int flags) { return (flags & O_ACCMODE) == O_RDONLY && !(flags & O_CREAT) ? 'o' : 'c'; }

#define OPEN(function) \
  int function(const char *name, int flags, ...) { \
    va_list list; \
    va_start(list, flags); \
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, int) : 0; \
    va_end(list); \
    REAL(function); \
    NAMED(opening(flags), AT_FDCWD, name, -1, real(name, flags, mode)); \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(function) \
  int function(int folder, const char *name, int flags, ...) { \
    va_list list; \
    va_start(list, flags); \
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, int) : 0; \
    va_end(list); \
    REAL(function); \
    NAMED(opening(flags), folder, name, -1, real(folder, name, flags, mode)); \
  }
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(function) \
  FILE *function(const char *name, const char *mode) { \
    REAL(function); \
    NAMED(mode[0] == 'r' && !strchr(mode, '+') ? 'o' : 'c', AT_FDCWD, name, NULL, real(name, mode)); \
  }
FOPEN(fopen)
FOPEN(fopen64)

/* A write: of one that fails the first half is written before, as where a disk fills. */
#define WRITTEN(file, whole, half) \
  enum strike strike = at_file('w', file); \
  if (strike == FAIL) { \
    if (errno != ENOSPC || atomic_exchange(&written_half, 1)) return -1; \
    return half; \
  } \
  if (strike == HALF) { \
    if (half >= 0) END; \
  } \
  return whole

ssize_t write(int file, const void *data, size_t size) {
  REAL(write);
  WRITTEN(file, real(file, data, size), real(file, data, size / 2));
}
ssize_t pwrite(int file, const void *data, size_t size, off_t place) {
  REAL(pwrite);
  WRITTEN(file, real(file, data, size, place), real(file, data, size / 2, place));
}
ssize_t pwrite64(int file, const void *data, size_t size, off_t place) {
  REAL(pwrite64);
  WRITTEN(file, real(file, data, size, place), real(file, data, size / 2, place));
}
ssize_t writev(int file, const struct iovec *parts, int n) {
  REAL(writev);
  WRITTEN(file, real(file, parts, n), real(file, parts, n > 1 ? n / 2 : 1));
}
ssize_t pwritev(int file, const struct iovec *parts, int n, off_t place) {
  REAL(pwritev);
  WRITTEN(file, real(file, parts, n, place), real(file, parts, n > 1 ? n / 2 : 1, place));
}

#define OF_FILE(kind, file, call) \
  enum strike strike = at_file(kind, file); \
  if (strike == FAIL) return -1; \
  __typeof__(call) result = call; \
  if (strike == HALF) END; \
  return result

ssize_t read(int file, void *data, size_t size) {
  REAL(read);
  OF_FILE('r', file, real(file, data, size));
}
ssize_t pread(int file, void *data, size_t size, off_t place) {
  REAL(pread);
  OF_FILE('r', file, real(file, data, size, place));
}
ssize_t pread64(int file, void *data, size_t size, off_t place) {
  REAL(pread64);
  OF_FILE('r', file, real(file, data, size, place));
}
int fsync(int file) {
  REAL(fsync);
  OF_FILE('s', file, real(file));
}
int fdatasync(int file) {
  REAL(fdatasync);
  OF_FILE('s', file, real(file));
}
int ftruncate(int file, off_t size) {
  REAL(ftruncate);
  OF_FILE('w', file, real(file, size));
}
int ftruncate64(int file, off_t size) {
  REAL(ftruncate64);
  OF_FILE('w', file, real(file, size));
}

int rename(const char *from, const char *to) {
  REAL(rename);
  NAMED('n', AT_FDCWD, to, -1, real(from, to));
}
int renameat(int from_folder, const char *from, int folder, const char *to) {
  REAL(renameat);
  NAMED('n', folder, to, -1, real(from_folder, from, folder, to));
}
int renameat2(int from_folder, const char *from, int folder, const char *to, unsigned flags) {
  REAL(renameat2);
  NAMED('n', folder, to, -1, real(from_folder, from, folder, to, flags));
}
int link(const char *from, const char *to) {
  REAL(link);
  NAMED('n', AT_FDCWD, to, -1, real(from, to));
}
int linkat(int from_folder, const char *from, int folder, const char *to, int flags) {
  REAL(linkat);
  NAMED('n', folder, to, -1, real(from_folder, from, folder, to, flags));
}
int mkdir(const char *name, mode_t mode) {
  REAL(mkdir);
  NAMED('m', AT_FDCWD, name, -1, real(name, mode));
}
int mkdirat(int folder, const char *name, mode_t mode) {
  REAL(mkdirat);
  NAMED('m', folder, name, -1, real(folder, name, mode));
}
int unlink(const char *name) {
  REAL(unlink);
  NAMED('u', AT_FDCWD, name, -1, real(name));
}
int unlinkat(int folder, const char *name, int flags) {
  REAL(unlinkat);
  NAMED('u', folder, name, -1, real(folder, name, flags));
}
int rmdir(const char *name) {
  REAL(rmdir);
  NAMED('u', AT_FDCWD, name, -1, real(name));
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  REAL(clock_gettime);
  int result = real(clock, now);
  if (result == 0 && clock == CLOCK_REALTIME) now->tv_sec -= atomic_load(&set_back);
  return result;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  REAL(gettimeofday);
  int result = real(now, zone);
  if (result == 0) now->tv_sec -= atomic_load(&set_back);
  return result;
}
time_t time(time_t *now) {
  REAL(time);
  time_t result = real(NULL) - atomic_load(&set_back);
  if (now) *now = result;
  return result;
}
