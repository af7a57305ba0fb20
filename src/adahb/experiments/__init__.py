"""The paper's figures and claims as commands.

store      results on disk, one file a run, whole or not there
runs       what is run: a method on a problem, and the curve that comes of it
synthetic  figure 5: the hard function
convex     figure 6: hinge losses on l1 balls
deep       figures 1 to 4: networks, six optimizers and those of today
claims     each claim with its numbers, their intervals and a verdict
errata     where the paper is wrong
report     one page that shows it all
"""
