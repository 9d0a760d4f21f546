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

enum fault { NONE, FAIL, HALF };  /* what befalls an operation; HALF ends the program after it */

static atomic_long operation_count, clock_offset;
static atomic_int has_written_half;
static const char *root, *kinds, *action;
static long first_fault, fault_count;
static int log_file = -1;

#define REAL(name) \
  static __typeof__(name) *real; \
  if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void read_settings(void) {
  const char *log = getenv("FAULTS_LOG"), *n;
  kinds = getenv("FAULTS_KINDS");
  action = getenv("FAULTS_DO");
  first_fault = (n = getenv("FAULTS_AT")) ? atol(n) : 0;
  fault_count = (n = getenv("FAULTS_FOR")) ? atol(n) : 1;
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

static enum fault apply_fault(char kind, const char *path) {
  if (!root || !kinds || !strchr(kinds, kind) || !below_root(path)) return NONE;
  int saved_errno = errno;
  long n = atomic_fetch_add(&operation_count, 1) + 1;
  if (log_file >= 0) dprintf(log_file, "%ld %c %s\n", n, kind, path);
  errno = saved_errno;
  if (!first_fault || !action || n < first_fault || (fault_count && n >= first_fault + fault_count)) return NONE;
  if (!strncmp(action, "error=", 6)) {
    errno = atoi(action + 6);
    return FAIL;
  }
  if (n > first_fault) return NONE;
  if (!strcmp(action, "kill")) kill(getpid(), SIGKILL);
  if (!strcmp(action, "half")) return HALF;
  if (!strncmp(action, "signal=", 7)) kill(getpid(), atoi(action + 7));
  if (!strncmp(action, "run=", 4)) run_command(action + 4);
  if (!strncmp(action, "clock=", 6)) atomic_store(&clock_offset, atol(action + 6));
  errno = saved_errno;
  return NONE;
}

static void read_descriptor_path(int fd, char *path) {
  char link[64];
  int saved_errno = errno;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, PATH_MAX - 1);
  path[n > 0 ? n : 0] = 0;
  errno = saved_errno;
}

static enum fault fault_at_path(char kind, int folder, const char *name) {
  char path[2 * PATH_MAX];
  if (!root) return NONE;
  if (!name) return NONE;
  if (name[0] == '/') return apply_fault(kind, name);
  if (folder != AT_FDCWD)
    read_descriptor_path(folder, path);
  else if (!getcwd(path, PATH_MAX))
    return NONE;
  size_t n = strlen(path);
  snprintf(path + n, PATH_MAX, "/%s", name);
  return apply_fault(kind, path);
}

static enum fault fault_at_descriptor(char kind, int fd) {
  char path[PATH_MAX];
  if (!root) return NONE;
  read_descriptor_path(fd, path);
  return path[0] == '/' ? apply_fault(kind, path) : NONE;
}

#define END_PROCESS kill(getpid(), SIGKILL)

/* An operation of a name: fails, or is done, after which the program may end. */
#define PATH_OPERATION(kind, folder, name, failed, call) \
  enum fault fault = fault_at_path(kind, folder, name); \
  if (fault == FAIL) return failed; \
  __typeof__(call) result = call; \
  if (fault == HALF) END_PROCESS; \
  return result

static char open_kind(int flags) { return (flags & O_ACCMODE) == O_RDONLY && !(flags & O_CREAT) ? 'o' : 'c'; }

#define OPEN(function) \
  int function(const char *name, int flags, ...) { \
    va_list list; \
    va_start(list, flags); \
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, int) : 0; \
    va_end(list); \
    REAL(function); \
    PATH_OPERATION(open_kind(flags), AT_FDCWD, name, -1, real(name, flags, mode)); \
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
    PATH_OPERATION(open_kind(flags), folder, name, -1, real(folder, name, flags, mode)); \
  }
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(function) \
  FILE *function(const char *name, const char *mode) { \
    REAL(function); \
    PATH_OPERATION(mode[0] == 'r' && !strchr(mode, '+') ? 'o' : 'c', AT_FDCWD, name, NULL, real(name, mode)); \
  }
FOPEN(fopen)
FOPEN(fopen64)

/* A write: of one that fails the first half is written before, as where a disk fills. */
#define WRITE_OPERATION(fd, full_write, half_write) \
  enum fault fault = fault_at_descriptor('w', fd); \
  if (fault == FAIL) { \
    if (errno != ENOSPC || atomic_exchange(&has_written_half, 1)) return -1; \
    return half_write; \
  } \
  if (fault == HALF) { \
    if (half_write >= 0) END_PROCESS; \
  } \
  return full_write

ssize_t write(int fd, const void *data, size_t size) {
  REAL(write);
  WRITE_OPERATION(fd, real(fd, data, size), real(fd, data, size / 2));
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
  REAL(pwrite);
  WRITE_OPERATION(fd, real(fd, data, size, offset), real(fd, data, size / 2, offset));
}
ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) {
  REAL(pwrite64);
  WRITE_OPERATION(fd, real(fd, data, size, offset), real(fd, data, size / 2, offset));
}
ssize_t writev(int fd, const struct iovec *parts, int n) {
  REAL(writev);
  WRITE_OPERATION(fd, real(fd, parts, n), real(fd, parts, n > 1 ? n / 2 : 1));
}
ssize_t pwritev(int fd, const struct iovec *parts, int n, off_t offset) {
  REAL(pwritev);
  WRITE_OPERATION(fd, real(fd, parts, n, offset), real(fd, parts, n > 1 ? n / 2 : 1, offset));
}

#define DESCRIPTOR_OPERATION(kind, fd, call) \
  enum fault fault = fault_at_descriptor(kind, fd); \
  if (fault == FAIL) return -1; \
  __typeof__(call) result = call; \
  if (fault == HALF) END_PROCESS; \
  return result

ssize_t read(int fd, void *data, size_t size) {
  REAL(read);
  DESCRIPTOR_OPERATION('r', fd, real(fd, data, size));
}
ssize_t pread(int fd, void *data, size_t size, off_t offset) {
  REAL(pread);
  DESCRIPTOR_OPERATION('r', fd, real(fd, data, size, offset));
}
ssize_t pread64(int fd, void *data, size_t size, off_t offset) {
  REAL(pread64);
  DESCRIPTOR_OPERATION('r', fd, real(fd, data, size, offset));
}
int fsync(int fd) {
  REAL(fsync);
  DESCRIPTOR_OPERATION('s', fd, real(fd));
}
int fdatasync(int fd) {
  REAL(fdatasync);
  DESCRIPTOR_OPERATION('s', fd, real(fd));
}
int ftruncate(int fd, off_t size) {
  REAL(ftruncate);
  DESCRIPTOR_OPERATION('w', fd, real(fd, size));
}
int ftruncate64(int fd, off_t size) {
  REAL(ftruncate64);
  DESCRIPTOR_OPERATION('w', fd, real(fd, size));
}

int rename(const char *from, const char *to) {
  REAL(rename);
  PATH_OPERATION('n', AT_FDCWD, to, -1, real(from, to));
}
int renameat(int from_folder, const char *from, int folder, const char *to) {
  REAL(renameat);
  PATH_OPERATION('n', folder, to, -1, real(from_folder, from, folder, to));
}
int renameat2(int from_folder, const char *from, int folder, const char *to, unsigned flags) {
  REAL(renameat2);
  PATH_OPERATION('n', folder, to, -1, real(from_folder, from, folder, to, flags));
}
int link(const char *from, const char *to) {
  REAL(link);
  PATH_OPERATION('n', AT_FDCWD, to, -1, real(from, to));
}
int linkat(int from_folder, const char *from, int folder, const char *to, int flags) {
  REAL(linkat);
  PATH_OPERATION('n', folder, to, -1, real(from_folder, from, folder, to, flags));
}
int mkdir(const char *name, mode_t mode) {
  REAL(mkdir);
  PATH_OPERATION('m', AT_FDCWD, name, -1, real(name, mode));
}
int mkdirat(int folder, const char *name, mode_t mode) {
  REAL(mkdirat);
  PATH_OPERATION('m', folder, name, -1, real(folder, name, mode));
}
int unlink(const char *name) {
  REAL(unlink);
  PATH_OPERATION('u', AT_FDCWD, name, -1, real(name));
}
int unlinkat(int folder, const char *name, int flags) {
  REAL(unlinkat);
  PATH_OPERATION('u', folder, name, -1, real(folder, name, flags));
}
int rmdir(const char *name) {
  REAL(rmdir);
  PATH_OPERATION('u', AT_FDCWD, name, -1, real(name));
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  REAL(clock_gettime);
  int result = real(clock, now);
  if (result == 0 && clock == CLOCK_REALTIME) now->tv_sec -= atomic_load(&clock_offset);
  return result;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  REAL(gettimeofday);
  int result = real(now, zone);
  if (result == 0) now->tv_sec -= atomic_load(&clock_offset);
  return result;
}
time_t time(time_t *now) {
  REAL(time);
  time_t result = real(NULL) - atomic_load(&clock_offset);
  if (now) *now = result;
  return result;
}
