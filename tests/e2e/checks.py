# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What tests say of what they see."""
import time

import raw
from raw import SLOW


class Skip(Exception):
    """Why a test cannot run here."""


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def equal(is_, shall, what):
    if is_ != shall:
        raise AssertionError('%s is %r, not %r' % (what, is_, shall))


def same_bytes(is_, shall, what):
    """Says where they begin to differ, and in how many bytes."""
    if bytes(is_) == bytes(shall):
        return
    differing = [i for i, (x, y) in enumerate(zip(is_, shall)) if x != y]
    raise AssertionError('%s: %d bytes, not %d; %d of them differ, the first at %s' % (
        what, len(is_), len(shall), len(differing), differing[:1]))


def status_is(answer, *statuses):
    """A reply, completion, event or exception with one of these statuses, and a sentence."""
    names = ', '.join(raw.status_name(s) for s in statuses)
    check(answer is not None, 'no answer, expected ' + names)
    check(answer.status in statuses, 'status %s (%s), expected %s' %
          (raw.status_name(answer.status), getattr(answer, 'text', ''), names))
    if answer.status != 0:
        check(len(answer.text.split()) >= 2, 'no sentence with %s: %r' %
              (raw.status_name(answer.status), answer.text))


def until(condition, what, timeout=30, pause=0.005):
    deadline = time.monotonic() + timeout * SLOW
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError('not in %g s: %s' % (timeout * SLOW, what))
        time.sleep(pause)
