# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""xferctl explain: what the daemon would do with a transfer, without one."""
import json

from harness import check, equal, test

RUNGS = ['inline', 'direct', 'split', 'stage', 'indirect']
COLUMNS = ['keys', 'price', 'rung', 'taken', 'verdict', 'why', 'work_requests']


def explain(t, op, local, remote=None, *options):
    """The rungs by name."""
    arguments = ['--op', op, '--local', local] + (['--remote', remote] if remote else [])
    status, out, errors = t.xferctl('--json', 'explain', *arguments, *options)
    equal(status, 0, 'status of %s (%s)' % (arguments, errors))
    rows = json.loads(out)['explain']
    equal([row['rung'] for row in rows], RUNGS, 'rungs')
    for row in rows:
        equal(sorted(row), COLUMNS, 'columns')
        check(row['why'], 'no reason: %s' % row)
        equal(row['taken'] == 'yes', row['verdict'] == 'taken', 'taken, and the verdict')
    return {row['rung']: row for row in rows}


def taken(rungs):
    names = [name for name in RUNGS if rungs[name]['taken'] == 'yes']
    equal(len(names), 1, 'rungs that are taken (%s)' % names)
    return names[0]


@test(forced=False)
def each_profile_in_its_way(t):
    rungs = explain(t, 'read', '9x4096,1x13', '1x36877')
    equal(taken(rungs), 'direct', 'on iwarp itself')
    equal(rungs['direct']['work_requests'], 1, 'work requests')
    # Three runs at the peer are three work requests.
    equal(explain(t, 'read', '9x4K', '3x12K')['direct']['work_requests'], 3, 'work requests')
    rungs = explain(t, 'read', '31x64K', '1x2031616', '--profile', 'mthca')
    equal((taken(rungs), rungs['split']['work_requests']), ('split', 2), 'on mthca')
    equal(rungs['direct']['why'], 'READ wants 31 pieces, the device takes 30', 'why not direct')
    rungs = explain(t, 'read', '1x64', '1x64', '--profile', 'siw')
    equal(taken(rungs), 'stage', 'on siw')
    equal(rungs['direct']['verdict'], 'no-keys', 'why not direct')
    rungs = explain(t, 'read', '17x1M', '1x17M', '--profile', 'cxgb4')
    equal(taken(rungs), 'stage', 'on cxgb4')
    rungs = explain(t, 'send', '200x8', None, '--profile', 'rxe')
    check(taken(rungs) in ('stage', 'indirect'), 'on rxe: %s' % rungs)
    equal(rungs['split']['verdict'], 'operation', 'why not split')


@test()
def none_can_carry_it(t):
    rungs = explain(t, 'send', '4096x1M')
    equal([name for name in RUNGS if rungs[name]['taken'] == 'yes'], [], 'taken')
    equal(rungs['stage']['verdict'], 'bytes', 'why not through a slab')
    equal(rungs['indirect']['verdict'], 'bytes', 'why not by one key')


@test(forced=False)
def the_most_that_can_be_asked(t):
    rungs = explain(t, 'write', '4096x256M', '4096x256M')
    equal(taken(rungs), 'direct', 'a TiB')
    equal(rungs['direct']['work_requests'], 4096, 'work requests')
    check(rungs['stage']['work_requests'] == 8 << 20, 'staged: %s' % rungs['stage'])


@test()
def for_people(t):
    status, out, errors = t.xferctl('explain', '--op', 'recv', '--local', '2x64K', '--device', 'iwarp')
    equal(status, 0, 'status (%s)' % errors)
    check(all(name in out for name in RUNGS) and 'taken' in out, 'what it says: ' + out)


@test()
def wrong_questions(t):
    whole = ['--op', 'read', '--local', '1x1', '--remote', '1x1']
    for arguments in ([], ['extra'] + whole, whole[:2], whole[2:], whole[:4],
                      whole + ['--device', 'iwarp', '--profile', 'mlx5'], whole + ['--sync']):
        status, out, errors = t.xferctl('explain', *arguments)
        equal(status, 2, 'status of %s (%s)' % (arguments, errors))
        check(errors.strip() and not out.strip(), 'what %s says' % arguments)
    equal(t.xferctl('status', '--op', 'read')[0], 2, 'status of --op of another command')
    for arguments, says in ((['--op', 'fly', '--local', '1x1'], "'fly'"),
                            (['--op', 'send', '--local', '5000x1'], '4096'),
                            (['--op', 'send', '--local', '1x5G'], '4294967295'),
                            (['--op', 'send', '--local', '4096x1G'], '1099511627776'),
                            (['--op', 'send', '--local', '1x'], "'1x'"),
                            (['--op', 'send', '--local', '1x1,' * 1400], '4096'),
                            (['--op', 'read', '--local', '1x1', '--remote', '1x2'], '2'),
                            (whole + ['--device', 'no-such'], "'no-such'"),
                            (whole + ['--profile', 'no-such'], 'mlx5')):
        status, out, errors = t.xferctl('explain', *arguments)
        # Words that mean nothing are wrong arguments, whoever finds that out.
        equal(status, 1 if 'no-such' in arguments else 2, 'status of %s (%s)' % (arguments[:4], errors))
        check(says in errors and not out.strip(), 'what it says: ' + errors)


@test()
def asked_by_hand(t):
    """The table of the socket: other numbers of words, and words for a table that takes none."""
    s = t.session()
    for table, words in (('explain', []), ('explain', ['read']), ('explain', [''] * 6),
                         ('status', ['x']), ('quotas', [''])):
        reply = s.call_raw('query', table=table, arguments=words)
        check(reply.status == -22 and reply.text, '%s %s: %d %s' % (table, words, reply.status, reply.text))
    equal([row['rung'] for row in s.query('explain', 'send', '1x1', '', '', '')], RUNGS, 'rungs')
