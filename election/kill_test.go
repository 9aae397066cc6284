package election_test

func childCampaigns() {}
