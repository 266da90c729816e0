/* Copyright (c) 2026, The Apiary authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Preloaded into a program: its clock of the day is as many seconds off as CHAOS_CLOCK says, a file
 * that is read again each second. Other clocks, sleeps and system calls are left alone; libfaketime
 * breaks those of Python (clock_nanosleep and syscall end with EINVAL).
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset(time_t now) {
  static time_t read_at;
  static long seconds;
  if (now != read_at) {
    const char *path = getenv("CHAOS_CLOCK");
    char text[24] = "";
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    read_at = now;
    seconds = 0;
    if (file >= 0) {
      if (read(file, text, sizeof text - 1) > 0) seconds = strtol(text, NULL, 10);
      close(file);
    }
  }
  return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *to) {
  int status = (int)syscall(SYS_clock_gettime, clock, to);
  if (status == 0 && clock == CLOCK_REALTIME) to->tv_sec += offset(to->tv_sec);
  return status;
}

int gettimeofday(struct timeval *to, void *zone) {
  struct timespec now;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &now) == 0) {
    to->tv_sec = now.tv_sec;
    to->tv_usec = now.tv_nsec / 1000;
  }
  return 0;
}

time_t time(time_t *to) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (to) *to = now.tv_sec;
  return now.tv_sec;
}
