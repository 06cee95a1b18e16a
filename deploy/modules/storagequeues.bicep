// The queues of TRANSPORT=storagequeue: one for each subscriber, one for what it could not take, and the blobs of what is
// too large for a message.
param accountName string
param principalId string

@description('The app\'s own subscriptions.')
param ownQueues string[]

@description('Those of other services: [{ name, principalId }].')
param otherQueues array
param claimContainerName string

@description('Days after which a claim is deleted: twice the life of an event, since a message may wait for as long as its event lives.')
@minValue(1)
param claimDays int

var queueDataContributor = '974c5e8b-45b9-4653-ba55-5f855dd0fb88'
var blobDataReader = '2a2b9908-6ea1-4ae2-8e65-a410df84e7d1'
var names = concat(ownQueues, map(otherQueues, each => each.name))

resource account 'Microsoft.Storage/storageAccounts@2024-01-01' existing = {
  name: accountName
}

resource queueService 'Microsoft.Storage/storageAccounts/queueServices@2024-01-01' = {
  parent: account
  name: 'default'
}

resource blobService 'Microsoft.Storage/storageAccounts/blobServices@2024-01-01' existing = {
  parent: account
  name: 'default'
}

resource queues 'Microsoft.Storage/storageAccounts/queueServices/queues@2024-01-01' = [for name in names: {
  parent: queueService
  name: name
}]

resource poisonQueues 'Microsoft.Storage/storageAccounts/queueServices/queues@2024-01-01' = [for name in names: {
  parent: queueService
  name: '${name}-poison'
}]

resource claims 'Microsoft.Storage/storageAccounts/blobServices/containers@2024-01-01' = {
  parent: blobService
  name: claimContainerName
}

// An account has one such policy.
resource lifecycle 'Microsoft.Storage/storageAccounts/managementPolicies@2024-01-01' = {
  parent: account
  name: 'default'
  properties: {
    policy: {
      rules: [
        {
          enabled: true
          name: 'claims'
          type: 'Lifecycle'
          definition: {
            filters: {
              blobTypes: ['blockBlob']
              prefixMatch: ['${claimContainerName}/']
            }
            actions: {
              baseBlob: {
                delete: {
                  daysAfterModificationGreaterThan: claimDays
                }
              }
            }
          }
        }
      ]
    }
  }
}

// On the account: the app sends to all queues, receives from its own, and looks how full they are. Its role for blobs is in
// storage.bicep.
resource app 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(account.id, principalId, queueDataContributor)
  scope: account
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', queueDataContributor)
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}

resource others 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for index in range(0, length(otherQueues)): {
  name: guid(account.id, otherQueues[index].name, otherQueues[index].principalId, queueDataContributor)
  scope: queues[length(ownQueues) + index]
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', queueDataContributor)
    principalId: otherQueues[index].principalId
    principalType: 'ServicePrincipal'
  }
}]

resource othersPoison 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for index in range(0, length(otherQueues)): {
  name: guid(account.id, otherQueues[index].name, otherQueues[index].principalId, queueDataContributor, 'poison')
  scope: poisonQueues[length(ownQueues) + index]
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', queueDataContributor)
    principalId: otherQueues[index].principalId
    principalType: 'ServicePrincipal'
  }
}]

resource othersClaims 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for each in otherQueues: {
  name: guid(claims.id, each.name, each.principalId, blobDataReader)
  scope: claims
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', blobDataReader)
    principalId: each.principalId
    principalType: 'ServicePrincipal'
  }
}]
