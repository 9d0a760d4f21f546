"""Dump what Caffe computes, for `caffejax compare`. --like takes the inputs of a dump, and its params if no weights."""
# ruff: noqa: B905, UP031 (old Caffes run with Python 2.7)

import argparse
import json

import caffe
import numpy as np

parser = argparse.ArgumentParser(description=__doc__)
for flag in ("model", "out", "--weights", "--like"):
    parser.add_argument(flag)
parser.add_argument("--phase", default="TEST", choices=("TRAIN", "TEST"))
parser.add_argument("--backward", action="store_true")
args = parser.parse_args()
caffe.set_mode_cpu()  # on a GPU some layers leave other things in diffs that nothing needs
net = caffe.Net(*[args.model] + [args.weights] * bool(args.weights) + [getattr(caffe, args.phase)])
like, random, keys, made, out = np.load(args.like) if args.like else {}, np.random.RandomState(0), [], {}, {}
for name in net._layer_names:
    keys.append(next(k for k in [name] + ["%s#%d" % (name, n) for n in range(2, 999)] if k not in keys))
bottoms, tops = (
    [[net._blob_names[b] for b in f(i)] for i in range(len(keys))] for f in (net._bottom_ids, net._top_ids)
)
params = [("%s/%d" % (keys[i], n), p) for i in range(len(keys)) for n, p in enumerate(net.layers[i].blobs)]
for name, p in params:
    p.data[...] = p.data if args.weights or "param/" + name not in like else like["param/" + name]
    out["param/" + name] = p.data.copy()
given = dict((b, random.normal(size=net.blobs[b].data.shape)) for b in net.inputs)
given.update((n[6:], like[n]) for n in like.keys() if n.startswith("input/"))
for i, key in enumerate(keys):
    out.update(("top/%s/%s" % (made[b], b), net.blobs[b].data.copy()) for b in tops[i] if b in made)
    out["loss"] = out.get("loss", 0) + net._forward(i, i)
    for b in () if bottoms[i] else [b for b in tops[i] if b in given]:
        net.blobs[b].reshape(*given[b].shape)
        net.blobs[b].data[...] = out["input/" + b] = given[b].astype("f")
    made.update((b, key) for b in tops[i])
out.update(("blob/" + b, net.blobs[b].data.copy()) for b in made)
for i in range(len(keys) - 1, -1, -1) if args.backward else ():
    out.update(("top_diff/%s/%s" % (keys[i], b), net.blobs[b].diff.copy()) for b in tops[i] if b in bottoms[i])
    net._backward(i, i)
out.update([("diff/" + b, net.blobs[b].diff.copy()) for b in made] if args.backward else [])
out.update([("grad/" + name, p.diff.copy()) for name, p in params] if args.backward else [])
layers = [dict(name=k, type=x.type, bottoms=b, tops=t) for k, x, b, t in zip(keys, net.layers, bottoms, tops)]
meta = {"format": "caffe dump 1", "maker": "pycaffe", "net": args.model, "phase": args.phase, "layers": layers}
np.savez(args.out, meta=json.dumps(meta), **out)
