/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/*
 * What one TCP connection over loopback carries from file to file: the yardstick for transfers
 * between two daemons of this host.
 *
 *	tcpcopy FROM TO
 *
 * One process reads FROM and sends it, the other receives it and writes TO: read, send, recv and
 * write of 1 MiB each, no checksum, nothing synced. Prints
 * "bytes=… seconds=… bytes_per_second=…", from the connect to the last byte written.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PIECE_BYTES (1u << 20)

static char piece[PIECE_BYTES];

static int check(int result, const char *what)
{
	if (result >= 0)
		return result;
	fprintf(stderr, "tcpcopy: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* All of one descriptor into the other. Returns how much that was. */
static unsigned long long pour(int from, const char *from_name, int to, const char *to_name)
{
	unsigned long long bytes = 0;
	ssize_t n;

	while ((n = read(from, piece, sizeof(piece))) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		check((int)n, from_name);
		bytes += (unsigned long long)n;
		for (ssize_t done = 0; done < n;) {
			ssize_t m = write(to, piece + done, (size_t)(n - done));

			if (m < 0 && errno == EINTR)
				continue;
			check((int)m, to_name);
			done += m;
		}
	}
	return bytes;
}

static void send_file(int file, const char *name, const struct sockaddr_in *at)
{
	int sock = check(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");

	check(connect(sock, (const struct sockaddr *)at, sizeof(*at)), "connect");
	pour(file, name, sock, "send");
	close(sock);
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t size = sizeof(at);
	unsigned long long bytes;
	int listener, sock, from, to, status;
	double seconds;
	pid_t child;

	if (argc != 3) {
		fputs("Usage: tcpcopy FROM TO\n", stderr);
		return 2;
	}
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = check(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
	check(bind(listener, (struct sockaddr *)&at, sizeof(at)), "bind");
	check(listen(listener, 1), "listen");
	check(getsockname(listener, (struct sockaddr *)&at, &size), "getsockname");
	from = check(open(argv[1], O_RDONLY | O_CLOEXEC), argv[1]);
	to = check(open(argv[2], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666), argv[2]);
	seconds = now();
	child = check(fork(), "fork");
	if (child == 0) {
		send_file(from, argv[1], &at);
		_exit(0);
	}
	sock = check(accept(listener, NULL, NULL), "accept");
	bytes = pour(sock, "recv", to, argv[2]);
	check(close(to), argv[2]);
	seconds = now() - seconds;
	check(waitpid(child, &status, 0), "wait");
	if (status != 0)
		return 1;
	printf("bytes=%llu seconds=%.6f bytes_per_second=%.0f\n", bytes, seconds,
	       (double)bytes / seconds);
	return 0;
}
