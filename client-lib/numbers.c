/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Objects by the daemon's numbers: a sorted array, for a thousand or so. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client-lib/internal.h"

struct cl_number {
	uint32_t number;
	void *object;
};

/* Where the number is, or would be. */
static size_t position(const struct cl_numbers *t, uint32_t number)
{
	size_t low = 0, high = t->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (t->at[middle].number < number)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

int cl_numbers_add(struct cl_numbers *t, uint32_t number, void *object)
{
	size_t i = position(t, number);

	if (i < t->n && t->at[i].number == number)
		return -EEXIST;
	if (t->n == t->room) {
		size_t room = t->room ? t->room * 2 : 8;
		struct cl_number *at = reallocarray(t->at, room, sizeof(*at));

		if (!at)
			return -ENOMEM;
		t->at = at;
		t->room = room;
	}
	memmove(&t->at[i + 1], &t->at[i], (t->n - i) * sizeof(*t->at));
	t->at[i] = (struct cl_number){ number, object };
	t->n++;
	return 0;
}

void *cl_numbers_get(const struct cl_numbers *t, uint32_t number)
{
	size_t i = position(t, number);

	return i < t->n && t->at[i].number == number ? t->at[i].object : NULL;
}

void cl_numbers_remove(struct cl_numbers *t, uint32_t number)
{
	size_t i = position(t, number);

	if (i == t->n || t->at[i].number != number)
		return;
	t->n--;
	memmove(&t->at[i], &t->at[i + 1], (t->n - i) * sizeof(*t->at));
}

void cl_numbers_done(struct cl_numbers *t)
{
	free(t->at);
	*t = (struct cl_numbers){ 0 };
}
