/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Runs a fuzz target without libFuzzer, as a test that any compiler builds: over its corpus, and
 * over a bounded number of simple changes to it, the same ones each time. With arguments: over
 * those files.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define INPUT_BYTES_MAX 65536
#define CHANGES 400

static unsigned long runs;

/* From the heap and of that size exactly, so that a sanitizer sees a step too far. */
static void run(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	if (!copy)
		abort();
	memcpy(copy, data, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
	runs++;
}

static size_t pick(uint64_t *seed, size_t below)
{
	*seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return below ? (size_t)(*seed >> 33) % below : 0;
}

static void run_changed(const uint8_t *data, size_t size)
{
	static uint8_t changed[INPUT_BYTES_MAX];
	uint64_t seed = 1;

	for (int i = 0; i < CHANGES; i++) {
		size_t n = size;

		memcpy(changed, data, size);
		if (i % 4 == 0)
			n = pick(&seed, size + 1);
		for (size_t edits = pick(&seed, 4); edits > 0 && n > 0; edits--)
			changed[pick(&seed, n)] = i % 2 ? (uint8_t)pick(&seed, 256) :
							  data[pick(&seed, size)];
		run(changed, n);
	}
}

static int run_file(const char *path, int change)
{
	static uint8_t data[INPUT_BYTES_MAX];
	FILE *f = fopen(path, "rb");
	size_t n;

	if (!f) {
		perror(path);
		return -1;
	}
	n = fread(data, 1, sizeof(data), f);
	fclose(f);
	run(data, n);
	if (change)
		run_changed(data, n);
	return 0;
}

static int run_corpus(void)
{
	const char *srcdir = getenv("XD_SRCDIR");
	char folder[512], path[1024];
	const struct dirent *e;
	int files = 0, bad = 0;
	DIR *d;

	snprintf(folder, sizeof(folder), "%s/tests/fuzz/corpus/%s", srcdir ? srcdir : ".",
		 FUZZ_NAME);
	d = opendir(folder);
	if (!d) {
		perror(folder);
		return 1;
	}
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
		bad += run_file(path, 1) < 0;
		files++;
	}
	closedir(d);
	bad += files == 0;
	printf("1..1\n%s 1 - %s: %lu inputs made of %d files\n", bad ? "not ok" : "ok", FUZZ_NAME,
	       runs, files);
	return bad != 0;
}

int main(int argc, char **argv)
{
	int bad = 0;

	if (argc < 2)
		return run_corpus();
	for (int i = 1; i < argc; i++)
		bad += run_file(argv[i], 0) < 0;
	return bad != 0;
}
